/* Lists whose pages are asked for side by side: of any keys exactly what the list page after page
   gives; how many requests that takes; what becomes of servers that cannot start behind a key, or
   that walk a tree of folders; which servers are asked so at all. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "../../../dlpipe_s3.h"

#include "../../rig/s3_mock.h"
#include "../../rig/s3_listing.h"

#include "../../rig/check.h"

/* ---- keys ---- */

enum { MOST_KEYS = 1000000 };
static char **keys;
static int n_keys;
static uint64_t seed = 7;

static uint64_t roll(uint64_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 20) % n;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...) {
    char text[1100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text[1024] = '\0';
    if (!keys) keys = malloc(MOST_KEYS * sizeof *keys);
    if (!keys || n_keys == MOST_KEYS || !(keys[n_keys++] = strdup(text))) abort();
}

/* Sort the keys, and have each once. */
static void settle(void) {
    int kept = 0;
    if (n_keys > 0) qsort(keys, (size_t)n_keys, sizeof *keys, by_bytes);
    for (int i = 0; i < n_keys; i++) {
        if (!keys[i][0] || (kept > 0 && strcmp(keys[kept - 1], keys[i]) == 0))
            free(keys[i]);
        else
            keys[kept++] = keys[i];
    }
    n_keys = kept;
}

static void forget_keys(void) {
    while (n_keys > 0) free(keys[--n_keys]);
}

static size_t put_utf8(char *to, unsigned c) {
    if (c < 0x80) return to[0] = (char)c, 1;
    if (c < 0x800) return to[0] = (char)(0xc0 | c >> 6), to[1] = (char)(0x80 | (c & 63)), 2;
    to[0] = (char)(0xe0 | c >> 12), to[1] = (char)(0x80 | (c >> 6 & 63));
    to[2] = (char)(0x80 | (c & 63));
    return 3;
}

static const char *random_bytes(char *to, size_t n, int utf8) {
    size_t at = 0;
    while (at < n)
        if (utf8)
            at += put_utf8(to + at, (unsigned)(roll(3) ? 1 + roll(126) : 0x80 + roll(0xd700)));
        else
            to[at++] = (char)(1 + roll(255));
    to[at] = '\0';
    return to;
}

enum { SETS = 15 };

static void make_keys(int set, int n) {
    char text[1100];
    forget_keys();
    switch (set) {
    case 0: break;
    case 1: /* as many as are of one page, or of ten */
        for (int i = 0; i < 1000; i++) add("k%04d", i);
        break;
    case 2:
        for (int i = 0; i < n; i++) add("%016llx", (unsigned long long)roll(UINT64_MAX));
        break;
    case 3:
        for (int i = 0; i < n; i++)
            add("one/very/long/common/prefix/of/all/the/keys/img%09d.jpg", i);
        break;
    case 4: /* skewed: most of the keys lie deep below one of many */
        for (int i = 0; i < n; i++)
            if (i % 50 == 0)
                add("%08llx", (unsigned long long)roll(1ull << 32));
            else
                add("8aaa/where/nobody/looks/for/so/many/keys/%07d.bin", i);
        break;
    case 5:
        for (int i = 0; i < n; i++) add("%s", random_bytes(text, 1 + roll(12), 1));
        break;
    case 6: /* no UTF-8 */
        for (int i = 0; i < n; i++) add("%s", random_bytes(text, 1 + roll(12), 0));
        break;
    case 7: /* folders of folders */
        for (int i = 0; i < n; i++)
            add("n%08d/%d/n%08d_%llu.JPEG", i / 300, i / 40 % 7, i / 300,
                (unsigned long long)roll(99999));
        break;
    case 8: /* each is the beginning of the next one */
        memset(text, 'a', sizeof text);
        for (int i = 1; i <= n && i <= 1024; i++) add("%.*s", i, text);
        break;
    case 9: /* as long as keys may be */
        memset(text, 'x', sizeof text);
        for (int i = 0; i < n / 4 + 1; i++) add("%.1018s%06d", text, i);
        break;
    case 10: /* letters of another script */
        for (int i = 0; i < n; i++) add("\xe5\x9b\xbe/\xe4\xb8%c%c/%d", 0x80 + i % 64, 0, i);
        for (int i = 0; i < n; i++) add("\xe5%c%c.jpg", 0x80 + (int)roll(64), 0x80 + (int)roll(64));
        break;
    case 11: /* a few groups far apart */
        for (int i = 0; i < n; i++)
            add("%c%c/%05d", (int)"!AZaz~"[roll(6)], (int)"!0z~"[roll(4)], i);
        break;
    case 12: /* one character */
        for (int i = 1; i < 256; i++) add("%c", i);
        break;
    case 14: /* all that there may be */
        for (int i = 0; i < n; i++) add("%04d", i);
        break;
    default: /* hours of days, then some random name */
        for (int i = 0; i < n; i++)
            add("logs/2024/%02d/%02d/%02d/part-%05d-%08llx.gz", 1 + i / 600 % 12, 1 + i / 20 % 30,
                i % 24, i % 20, (unsigned long long)roll(1ull << 32));
        break;
    }
    settle();
}

/* ---- the rig ---- */

static s3_mock *mock;
static dlp_s3 *s3;
static dlp_s3_io *io;
static s3_listing room;
static char said[4096];

static void keep_line(void *user, const char *line) {
    size_t n = strlen(said);
    (void)user;
    snprintf(said + n, sizeof said - n, "%s\n", line);
}

static void begin(int max_requests) {
    dlp_s3_desc d = {.region = "us-east-1",
                     .access_key = "AKIDEXAMPLE",
                     .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                     .backoff_ms = 1,
                     .backoff_max_ms = 5,
                     .max_requests = max_requests,
                     .log = keep_line,
                     .hedge_percent = -1};
    dlp_s3_error err;
    int rc;
    mock = s3_mock_start();
    mock->script = s3_listing_serve, mock->user = &room;
    d.endpoint = mock->url;
    memset(&room, 0, sizeof room);
    said[0] = '\0';
    rc = dlp_s3_open(&s3, &d, &err);
    if (rc == DLP_OK) rc = dlp_s3_io_open(&io, s3, &err);
    if (rc != DLP_OK) {
        printf("cannot begin: %d %s\n", rc, err.message);
        exit(1);
    }
}

static void end(void) {
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(mock);
    free(room.page);
}

static void bucket_is(int set, int n) {
    int plain = set % 2;
    make_keys(set, n);
    free(room.page);
    memset(&room, 0, sizeof room);
    room.keys = (const char *const *)keys, room.n = n_keys;
    room.plain = plain;
    said[0] = '\0';
    s3_mock_forget(mock);
}

typedef struct text {
    char *at;
    size_t n, size;
    int objects, errors;
} text;

/* Write a list down, all that it says. Errors are called again for. Returns what ended it. */
static int write_down(text *t, const dlp_s3_list_desc *d, dlp_s3_error *err) {
    dlp_s3_list *l = NULL;
    dlp_s3_object o;
    int rc = dlp_s3_list_open(&l, io, d, err);
    t->n = 0;
    t->objects = t->errors = 0;
    while (rc == DLP_OK || (rc < 0 && room.fail_every && t->errors < 10000)) {
        size_t more;
        rc = dlp_s3_list_next(l, &o, err);
        if (rc < 0) t->errors++;
        if (rc != DLP_OK) {
            if (rc == DLP_END) break;
            continue;
        }
        more = o.key_bytes + 200;
        if (t->n + more > t->size) {
            t->size = 2 * (t->n + more);
            t->at = realloc(t->at, t->size);
            if (!t->at) abort();
        }
        t->n += (size_t)sprintf(t->at + t->n, "%s%c%d %llu %lld %d %s\n", o.key, 0,
                                (int)o.key_bytes, (unsigned long long)o.bytes,
                                (long long)o.modified_s, (int)o.is_prefix, o.etag);
        t->objects++;
    }
    dlp_s3_list_close(l);
    return rc;
}

static text serial, split;

/* Write it down both ways, and compare. A server that walks a tree may end both with an error.
   Returns the requests of the second; there are no more than s3_list.h promises. */
static int both(const char *prefix, const char *after, int page, int requests, int want) {
    dlp_s3_list_desc d = {.bucket = "b", .prefix = prefix, .start_after = after, .page = page};
    dlp_s3_error err = {0};
    int fail_every = room.fail_every, rc, pages = 0;
    room.fail_every = room.asked = 0;
    d.requests = 1;
    rc = write_down(&serial, &d, &err);
    pages = room.asked;
    CHECK(rc == DLP_END || (room.walks && rc == DLP_ERR_REMOTE));
    room.fail_every = fail_every;
    d.requests = requests;
    s3_mock_most(mock);
    room.asked = 0;
    CHECK(write_down(&split, &d, &err) == rc);
    if (err.code && !fail_every && !room.walks) printf("  %s\n", err.message);
    CHECK(rc == DLP_END || strstr(err.message, "out of order"));
    CHECK(s3_mock_most(mock) <= requests);
    CHECK(rc != DLP_END ||
          (serial.n == split.n && (serial.n == 0 || memcmp(serial.at, split.at, serial.n) == 0)));
    CHECK(want < 0 || rc != DLP_END || split.objects == want);
    if (rc == DLP_END && !room.uneven && !fail_every) CHECK(room.asked <= 2 * (pages + requests));
    if (getenv("LOUD"))
        printf("  %5d keys, page %4d, %2d at once: %5d requests, %5d serial, rc %d %s\n",
               split.objects, page, requests, room.asked, pages, rc, said);
    return room.asked;
}

/* ---- cases ---- */

static void split__any_keys__as_page_after_page(void) {
    begin(64);
    for (int set = 0; set < SETS; set++) {
        int n = getenv("SHORT") ? 300 : 3000;
        bucket_is(set, n);
        for (int turn = 0; turn < 6; turn++) {
            static const int pages[] = {1000, 100, 30, 7, 2, 50},
                             requests[] = {2, 3, 16, 64, 8, 32};
            const char *some = n_keys > 0 ? keys[roll((uint64_t)n_keys)] : "";
            char prefix[4] = "";
            int page = pages[turn], asked, useful;
            if (turn == 5) memcpy(prefix, some, strnlen(some, 3));
            room.uneven = turn % 2 && set % 2;
            asked =
                both(prefix, turn == 4 ? some : NULL, page, requests[turn], turn < 4 ? n_keys : -1);
            useful = split.objects / page + 1;
            if (room.uneven) useful *= 3;
            CHECK(asked <= 4 * (useful + requests[turn])); /* pages that are cut short count, too */
        }
    }
    end();
}

static void split__errors_in_between__goes_on(void) {
    begin(64);
    for (int set = 2; set < SETS; set++) {
        bucket_is(set, 600);
        room.fail_every = 3 + set % 4, room.fail_status = 403;
        both(NULL, NULL, 20, 8, n_keys);
        CHECK(split.errors > 0 || room.failed == 0 || room.asked < 20);
    }
    CHECK(split.errors > 0);
    end();
}

/* A failure far ahead is told when its turn comes, with the key behind which its page is. */
static void split__an_error__names_the_key(void) {
    dlp_s3_list_desc d = {.bucket = "b", .page = 20, .requests = 8};
    dlp_s3_list *l = NULL;
    dlp_s3_object o = {0};
    dlp_s3_error err = {0};
    char last[64] = "";
    int rc;
    begin(64);
    bucket_is(3, 600);
    room.fail_every = 5, room.fail_status = 403;
    CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_OK);
    while ((rc = dlp_s3_list_next(l, &o, &err)) == DLP_OK) snprintf(last, sizeof last, "%s", o.key);
    CHECK(rc == DLP_ERR_REMOTE && err.http_status == 403 && strcmp(err.bucket, "b") == 0);
    CHECK(strstr(err.message, "page behind 'one/very/long/common"));
    dlp_s3_list_close(l); /* with pages under way */
    room.fail_every = 0;
    both(NULL, NULL, 20, 8, n_keys);
    end();
}

static void split__start_after_that_does_not_work__page_after_page(void) {
    static const int ways[] = {S3_LISTING_IGNORES, S3_LISTING_REFUSES};
    int asked;
    begin(64);
    for (int i = 0; i < 2; i++) {
        bucket_is(3, 500);
        room.start_after = ways[i];
        asked = both(NULL, NULL, 10, 16, n_keys);
        CHECK(asked <= 50 + 1 + 2 * 16);
        CHECK(strstr(said, "page after page") && strstr(said, "s3: b: the server cannot"));
    }
    bucket_is(14, 1000); /* each split is a key that comes again */
    room.start_after = S3_LISTING_INCLUSIVE;
    both(NULL, NULL, 10, 16, n_keys);
    CHECK(strstr(said, "page after page"));
    end();
}

/* ---- trees ---- */

enum { TREES = 9 };

/* Folders as people have them. The last two are listed in another order than that of their bytes,
   so even the list page after page ends with an error. */
static void make_tree(int tree) {
    static const char *const odd[] = {"a b",  "a+b", "100%", "%41x",      "x&y",         "q?m",
                                      "it's", "{b}", "~t",   "\xc3\xbcn", "\xe6\x97\xa5"};
    static const int numbers[] = {1, 10, 11, 100, 12, 2, 20, 3, 4, 5};
    forget_keys();
    for (int i = 0; i < 600; i++) switch (tree) {
        case 0: add("shard-%d/%04d", i / 60, i % 60); break;
        case 1: add("%x/%04d", (unsigned)i % 16, i / 16); break;
        case 2: add("%d/%03d", numbers[i % 10], i / 10); break;
        case 3: add("a/b%d/c%d/k%02d", i % 5, i / 5 % 5, i / 25); break;
        case 4: add("%s/%d/k %+d", odd[i % 11], i / 11 % 3, i / 33); break;
        case 5:
            add(i % 4 % 3 ? "m%d/%03d" : "%c%03d", i % 4 % 3 ? i % 4 : 'k' + i % 4 * 5, i / 4);
            break;
        case 6: add("%c/%d/x", 'A' + i / 150, i % 150); break;
        case 7:
            add(i % 3 ? i % 3 == 1 ? "data-old/%03d" : "data/sub/%03d" : "data!x/%03d", i / 3);
            break;
        default: add("n%03d", i); break;
        }
    if (tree == 8) add("data"), add("data!x"), add("data-old"), add("data/sub");
    settle();
    if (n_keys > 0) qsort(keys, (size_t)n_keys, sizeof *keys, s3_listing_by_tree);
}

static void tree_is(int tree) {
    bucket_is(0, 0);
    make_tree(tree);
    room.keys = (const char *const *)keys, room.n = n_keys;
    room.walks = 1;
}

static void split__a_server_that_walks_a_tree__as_page_after_page(void) {
    static const int pages[] = {20, 50, 7}, requests[] = {2, 4, 8, 32};
    begin(64);
    for (int tree = 0; tree < TREES; tree++) {
        char prefix[8] = "";
        tree_is(tree);
        for (int turn = 0; turn < 4; turn++)
            both(NULL, NULL, pages[turn % 3], requests[turn % 4], n_keys);
        CHECK((split.objects == n_keys) == (tree < 7));
        for (int turn = 0; turn < 4; turn++) {
            memcpy(prefix, keys[roll((uint64_t)n_keys)], 1 + roll(5));
            both(prefix, NULL, pages[turn % 3], requests[turn], -1);
            both(NULL, keys[roll((uint64_t)n_keys)], pages[turn % 3], requests[turn], -1);
        }
    }
    end();
}

/* Folders and keys of names that are the beginnings of each other, and of bytes around '/'. */
static void make_random_tree(int n) {
    static const char *const names[] = {"0", "1",  "10", "2",  "a",  "a!", "a-b", "a.", "a0",
                                        "b", "b ", "b+", "b%", "b~", "c",  "d",   "/",  "\xc3\xa9"};
    uint64_t some = 2 + roll(sizeof names / sizeof names[0] - 1), depth = 1 + roll(4);
    forget_keys();
    for (int i = 0; i < n; i++) {
        char key[100] = "";
        for (uint64_t d = roll(depth); d > 0; d--)
            snprintf(key + strlen(key), sizeof key - strlen(key), "%s/",
                     names[roll(some) * 7 % (sizeof names / sizeof names[0])]);
        add("%s%s%02d", key, names[roll(some)], (int)roll(40));
    }
    settle();
}

static void split__any_tree__as_page_after_page(void) {
    int turns = getenv("SHORT") ? 30 : 120, whole = 0;
    begin(64);
    for (int turn = 0; turn < turns; turn++) {
        char prefix[8] = "";
        int walks = turn % 3 != 0;
        bucket_is(0, 0);
        make_random_tree(1 + (int)roll(400));
        if (walks) qsort(keys, (size_t)n_keys, sizeof *keys, s3_listing_by_tree);
        room.keys = (const char *const *)keys, room.n = n_keys;
        room.walks = walks;
        for (int i = 0; i < 3; i++) both(NULL, NULL, 1 + (int)roll(40), 2 + (int)roll(20), n_keys);
        whole += split.objects == n_keys;
        memcpy(prefix, keys[roll((uint64_t)n_keys)], 1 + roll(4));
        both(prefix, NULL, 1 + (int)roll(20), 2 + (int)roll(20), -1);
    }
    CHECK(whole > turns / 3);
    end();
}

/* A split that such a server gets wrong: the seam in front of it does not hold. */
static void split__a_seam_that_does_not_hold__page_after_page(void) {
    begin(64);
    tree_is(5); /* the survey finds no folder between keys, so splits are made up */
    for (int requests = 2; requests <= 32; requests *= 2) both(NULL, NULL, 20, requests, n_keys);
    CHECK(room.split > 0);
    tree_is(2);
    for (int i = 0; i < n_keys; i++) /* no folders: but names that are those of folders */
        for (char *c = keys[i] + 1; *c; c++) *c = *c == '/' ? '!' : *c;
    add("100"), add("10!/0"), add("10/0"), add("2!0/00"), add("2/0/0"), add("2/0/1");
    settle();
    qsort(keys, (size_t)n_keys, sizeof *keys, s3_listing_by_tree);
    room.keys = (const char *const *)keys, room.n = n_keys;
    for (int requests = 2; requests <= 32; requests *= 2) both(NULL, NULL, 20, requests, n_keys);
    end();
}

/* Folders that keys have are the splits, on any server. */
static void split__folders__are_where_it_is_split(void) {
    begin(64);
    for (int walks = 0; walks < 2; walks++) {
        tree_is(0);
        room.walks = walks;
        room.delay_ms = 2;
        both(NULL, NULL, 20, 8, n_keys);
        CHECK(room.surveys == 1 && room.split == 0 && !strstr(said, "page after page"));
    }
    end();
}

/* Keys that are made and deleted beside the list, also at splits: all others come once, in order.
   */
static void split__keys_that_come_and_go__the_others_once(void) {
    static const int sets[] = {2, 3, 7, 13};
    begin(64);
    for (int turn = 0; turn < 24; turn++) {
        dlp_s3_list_desc d = {.bucket = "b", .page = 5 + turn, .requests = 2 + turn % 9};
        dlp_s3_error err = {0};
        dlp_s3_list *l = NULL;
        dlp_s3_object o;
        int at = 0, rc = dlp_s3_list_open(&l, io, &d, &err), wrong = 0;
        bucket_is(sets[turn % 4], 500);
        room.flickers = 1;
        while (rc == DLP_OK && (rc = dlp_s3_list_next(l, &o, &err)) == DLP_OK) {
            while (at < n_keys && at % 7 == 3 && strcmp(o.key, keys[at]) != 0) at++;
            wrong += at == n_keys || strcmp(o.key, keys[at++]) != 0;
        }
        while (at < n_keys && at % 7 == 3) at++;
        CHECK(rc == DLP_END && at == n_keys && wrong == 0);
        dlp_s3_list_close(l);
    }
    end();
}

/* ---- */

/* Without "requests", pages are asked for side by side only where keys are known to be sorted. */
static void split__by_default__where_lists_are_sorted(void) {
    static const struct {
        const char *server, *id;
        int sorts;
    } some[] = {{NULL, NULL, 0},
                {"AmazonS3", NULL, 1},
                {"UploadServer", NULL, 1},
                {"cloudflare", NULL, 1},
                {"MinIO", NULL, 1},
                {"MinIO/RELEASE.2020-01-03T19-12-21Z", NULL, 1},
                {"Ceph Object Gateway (squid)", NULL, 1},
                {NULL, "tx00000dc9a2b22a8a6d3e3-006b0bf801-100b-default", 1},
                {NULL, "tx760798f72e1940eb9c025-006b0bf802", 0},
                {NULL, "tx00000dc9a2b22a8a6d3e3-006b0bf801-100b-", 0},
                {NULL, "tx00000dc9a2b22a8a6d3e3-006b0bf801--default", 0},
                {NULL, "tx00000dc9a2b22a8a6d3-006b0bf801ab-100b-default", 0},
                {NULL, "tx00000DC9a2b22a8a6d3e3-006b0bf801-100b-default", 0},
                {"SeaweedFS 8000GB 4.48", NULL, 0},
                {"AmazonS3x", NULL, 0},
                {"amazons3", NULL, 0},
                {"Amazon", NULL, 0},
                {"nginx", NULL, 0},
                {"MinIOx", NULL, 0}};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        for (int walks = 0; walks < 2; walks++) {
            dlp_s3_list_desc d = {.bucket = "b", .page = 20};
            dlp_s3_error err = {0};
            begin(64);
            mock->request_id = some[i].id;
            tree_is(walks ? 1 : 0);
            room.walks = walks;
            room.server = some[i].server;
            room.delay_ms = 1;
            s3_mock_most(mock);
            CHECK(write_down(&split, &d, &err) == DLP_END && split.objects == n_keys);
            CHECK((s3_mock_most(mock) > 1) == some[i].sorts);
            end();
        }
}

static void split__pages_not_in_order__refused(void) {
    dlp_s3_list_desc d = {.bucket = "b", .page = 10, .requests = 16};
    dlp_s3_error err = {0};
    begin(64);
    bucket_is(3, 500);
    room.swapped = 333;
    CHECK(write_down(&split, &d, &err) == DLP_ERR_REMOTE && split.objects <= 333);
    CHECK(strstr(err.message, "out of order"));
    d.any_order = 1; /* page after page */
    s3_mock_most(mock);
    CHECK(write_down(&split, &d, &err) == DLP_END && split.objects == 500);
    CHECK(s3_mock_most(mock) == 1);
    end();
}

/* An io that is full of other requests, and they go on beside the list. */
static void split__beside_other_requests__both(void) {
    static dlp_s3_request r[3];
    dlp_s3_request *done[3];
    static char body[3][2000];
    int n = 0;
    begin(4);
    bucket_is(2, 500);
    for (int i = 0; i < 3; i++) {
        memset(&r[i], 0, sizeof r[i]);
        r[i].bucket = "b", r[i].key = "", r[i].query = "list-type=2&max-keys=1";
        r[i].body = body[i], r[i].capacity = sizeof body[i];
        CHECK(dlp_s3_submit(io, &r[i]) == DLP_OK);
    }
    {
        dlp_s3_list_desc d = {.bucket = "b", .page = 10, .requests = 4};
        dlp_s3_error err = {0};
        CHECK(write_down(&split, &d, &err) == DLP_END && split.objects == n_keys);
    }
    while (n < 3 && dlp_s3_reap(io, done, 3, 5000) > 0) n++;
    for (int i = 0; i < 3; i++) CHECK(r[i].code == DLP_OK && r[i].received > 0);
    end();
}

static void split__a_million_keys__under_ten_seconds(void) {
    dlp_s3_list_desc d = {.bucket = "b"};
    dlp_s3_error err = {0};
    dlp_s3_list *l = NULL;
    dlp_s3_object o;
    int n = getenv("SHORT") ? 100000 : MOST_KEYS, at = 0, rc, wrong = 0;
    begin(0);
    for (int set = 2; set < 5; set++) {
        uint64_t began;
        bucket_is(set, set == 3 ? n : n / 5);
        room.delay_ms = 75;
        room.server = "AmazonS3";
        at = wrong = 0;
        began = test_now_ns();
        CHECK(dlp_s3_list_open(&l, io, &d, &err) == DLP_OK);
        while ((rc = dlp_s3_list_next(l, &o, &err)) == DLP_OK && at < n_keys)
            wrong += strcmp(o.key, keys[at++]) != 0;
        CHECK(rc == DLP_END && at == n_keys && wrong == 0);
        dlp_s3_list_close(l);
        began = test_now_ns() - began;
        CHECK(began < 10000000000u && room.asked <= 2 * (n_keys / 1000 + 32));
        CHECK(getenv("SHORT") || room.asked < 1.7 * n_keys / 1000 + 64);
        CHECK(s3_mock_most(mock) <= 32);
        printf("  %d keys of set %d: %.2f s, %d requests\n", at, set, (double)began / 1e9,
               room.asked);
    }
    end();
}

int main(int argc, char **argv) {
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    split__any_keys__as_page_after_page();
    split__errors_in_between__goes_on();
    split__an_error__names_the_key();
    split__start_after_that_does_not_work__page_after_page();
    split__a_server_that_walks_a_tree__as_page_after_page();
    split__any_tree__as_page_after_page();
    split__a_seam_that_does_not_hold__page_after_page();
    split__folders__are_where_it_is_split();
    split__keys_that_come_and_go__the_others_once();
    split__by_default__where_lists_are_sorted();
    split__pages_not_in_order__refused();
    split__beside_other_requests__both();
    split__a_million_keys__under_ten_seconds();
    forget_keys();
    free(keys);
    free(serial.at);
    free(split.at);
    return test_end("s3_list_split");
}
