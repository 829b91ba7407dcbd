/* needs: parts split */
/* S3 as a source of items, parts and chunks, with worker threads: manifests; the same bytes as from
   memory in every topology; neighbours in one request; errors, policies, resume, stop. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../../dlpipe_s3.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/s3_mock.h"
#include "../../rig/s3_source_rig.h"

static s3_mock *mock;
static dlp_s3 *client;

/* ---- manifests ---- */

static char *test_file(const char *text, size_t n) {
    static char path[64];
    int fd;
    snprintf(path, sizeof path, "/tmp/dlpipe-s3-XXXXXX");
    fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    close(fd);
    return path;
}

static void manifest__lines__parsed_or_named(void) {
    static const struct {
        const char *text;
        int line; /* 0: fine */
        uint64_t n;
    } table[] = {
        {"", 0, 0},
        {"a", 0, 1},
        {"a\n", 0, 1},
        {"# remark\na\t0\t10\n%23b\t5\t0\t3\n", 0, 2},
        {"a/b/c\t*\t7\n", 0, 1},
        {"%00\n", 1, 0},
        {"\n", 1, 0},
        {"a\n\nb\n", 2, 0},
        {"a\t1\n", 1, 0},
        {"a\t1\t2\t3\t4\n", 1, 0},
        {"a\t1\t2\t3\t\"4\"\n", 0, 1},
        {"a\t*\t-\n", 0, 1},
        {"a\t1\t-\n", 1, 0},
        {"a\t1\t2\t3\tW/\"4\"\n", 1, 0},
        {"a\t1\t2\t3\t\"4\n", 1, 0},
        {"a\t1\t2\t3\t\"4\"\t5\n", 1, 0},
        {"a\t1\t2\t3\t\n", 0, 1},
        {"a\t\t2\n", 1, 0},
        {"a\t-1\t2\n", 1, 0},
        {"a\t1\t+2\n", 1, 0},
        {"a\t1\t2x\n", 1, 0},
        {"a\t1\t2 \n", 1, 0},
        {"a\t0x1\t2\n", 1, 0},
        {"a\t9223372036854775807\t1\n", 1, 0},
        {"a\t9223372036854775806\t1\n", 0, 1},
        {"a\t9223372036854775808\t0\n", 1, 0},
        {"a\t99999999999999999999999\t0\n", 1, 0},
        {"a\t36893488147419103232\t0\n", 1, 0},
        {"a\t18446744073709551617\t0\n", 1, 0},
        {"a\n#\nb c\n", 3, 0},
        {"a\r\n", 1, 0},
        {"a%4\n", 1, 0},
        {"a%\n", 1, 0},
        {"a%zz\n", 1, 0},
        {"\t1\t2\n", 1, 0},
        {"a\t*\t*\n", 1, 0},
        {"ok\t0\t5\nbad\t0\tfive", 2, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        dlp_s3_manifest *m = NULL;
        dlp_s3_error err;
        char want[80], *path = test_file(table[i].text, strlen(table[i].text));
        int rc;
        CHECK(dlp_s3_manifest_open(&m, &err) == DLP_OK);
        rc = dlp_s3_manifest_read(m, path, &err);
        snprintf(want, sizeof want, "%s:%d: ", path, table[i].line);
        CHECK(rc == (table[i].line ? DLP_ERR_ARG : DLP_OK));
        if (table[i].line) CHECK(strncmp(err.message, want, strlen(want)) == 0);
        CHECK(dlp_s3_manifest_count(m) == table[i].n);
        if (rc != (table[i].line ? DLP_ERR_ARG : DLP_OK)) printf("  line table, %d\n", (int)i);
        unlink(path);
        dlp_s3_manifest_close(m);
    }
}

static void manifest__zero_bytes_and_long_lines__refused(void) {
    static char line[5000];
    dlp_s3_manifest *m = NULL;
    dlp_s3_error err;
    char *path = test_file("good\nba\0d\n", 10);
    CHECK(dlp_s3_manifest_open(&m, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_read(m, path, &err) == DLP_ERR_ARG && strstr(err.message, ":2: "));
    unlink(path);
    memset(line, 'k', sizeof line);
    path = test_file(line, sizeof line);
    CHECK(dlp_s3_manifest_read(m, path, &err) == DLP_ERR_ARG &&
          strstr(err.message, "more than 3232"));
    unlink(path);
    path = test_file(line, 1025);
    CHECK(dlp_s3_manifest_read(m, path, &err) == DLP_ERR_ARG && strstr(err.message, "1024"));
    unlink(path);
    CHECK(dlp_s3_manifest_read(m, "/nowhere/at/all", &err) == DLP_ERR_SYSTEM);
    CHECK(err.errnum == ENOENT && strstr(err.message, "/nowhere/at/all"));
    CHECK(dlp_s3_manifest_count(m) == 0);
    dlp_s3_manifest_close(m);
}

static int same_entry(const dlp_s3_entry *a, const dlp_s3_entry *b) {
    return strcmp(a->key, b->key) == 0 && a->offset == b->offset && a->length == b->length &&
           a->items == b->items && strcmp(a->etag, b->etag) == 0;
}

static void manifest__written_and_read__the_same(void) {
    dlp_s3_manifest *a = NULL, *b = NULL;
    dlp_s3_entry e, f;
    dlp_s3_error err;
    char key[1025], *path = test_file("", 0);
    CHECK(dlp_s3_manifest_open(&a, &err) == DLP_OK && dlp_s3_manifest_open(&b, &err) == DLP_OK);
    for (int i = 0; i < 600; i++) { /* every byte in keys, long ones, keys that come again */
        snprintf(key, sizeof key, "%cx%c%d", 1 + i % 255, 255 - i % 255, i / 510);
        if (i == 300) {
            memset(key, 0xff, 1024);
            key[1024] = 0;
        }
        e = (dlp_s3_entry){i % 7 == 6 ? "shared" : key, i % 3 ? (uint64_t)i * 99 : DLP_S3_WHOLE,
                           (uint64_t)(i % 5) * 1000, i > 200 ? (uint64_t)i % 4 : 0, NULL};
        if (i % 4 == 1) e.etag = i % 8 == 1 ? "\"0123456789abcdef0123456789abcdef-7\"" : "\"x\"";
        CHECK(dlp_s3_manifest_add(a, &e, &err) == DLP_OK);
    }
    CHECK(dlp_s3_manifest_write(a, path, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_read(b, path, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_count(b) == 600 && dlp_s3_manifest_id(a) == dlp_s3_manifest_id(b));
    for (uint64_t i = 0; i < 600; i++) {
        CHECK(dlp_s3_manifest_get(a, i, &e) == DLP_OK && dlp_s3_manifest_get(b, i, &f) == DLP_OK);
        CHECK(same_entry(&e, &f));
    }
    CHECK(dlp_s3_manifest_get(a, 600, &e) == DLP_ERR_ARG);
    e = (dlp_s3_entry){"one more", 0, 0, 0, NULL};
    CHECK(dlp_s3_manifest_add(b, &e, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_id(a) != dlp_s3_manifest_id(b));
    e.key = "";
    CHECK(dlp_s3_manifest_add(b, &e, &err) == DLP_ERR_ARG && strstr(err.message, "key"));
    unlink(path);
    dlp_s3_manifest_close(a);
    dlp_s3_manifest_close(b);
}

/* Under the name that it is written to first lies a connection: it is replaced, not followed. */
static void manifest__connection_planted__not_followed(void) {
    dlp_s3_manifest *m = NULL;
    dlp_s3_entry e = {"a", 0, 1, 0, NULL};
    struct stat st;
    char *path = test_file("", 0), tmp[512], victim[512];
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    snprintf(victim, sizeof victim, "%s.victim", path);
    CHECK(close(open(victim, O_WRONLY | O_CREAT | O_EXCL, 0600)) == 0);
    CHECK(truncate(victim, 5) == 0 && symlink(victim, tmp) == 0);
    CHECK(dlp_s3_manifest_open(&m, NULL) == DLP_OK);
    CHECK(dlp_s3_manifest_add(m, &e, NULL) == DLP_OK);
    CHECK(dlp_s3_manifest_write(m, path, NULL) == DLP_OK);
    CHECK(stat(victim, &st) == 0 && st.st_size == 5);
    CHECK(lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0);
    CHECK(lstat(tmp, &st) != 0);
    dlp_s3_manifest_close(m);
    unlink(victim);
    unlink(path);
}

/* Entries of shards that come in any order: 20 bytes each, and each key once. */
static void manifest__many_entries__few_bytes(void) {
    enum { ENTRIES = 100000, SHARDS = 1000 };
    dlp_s3_manifest *m = NULL;
    dlp_s3_error err;
    char key[32], *path = test_file("", 0);
    CHECK(dlp_s3_manifest_open(&m, &err) == DLP_OK);
    for (int i = 0; i < ENTRIES; i++) {
        dlp_s3_entry e = {key, (uint64_t)i, 100, 0, NULL};
        snprintf(key, sizeof key, "shard-%05d.tar", i * 7 % SHARDS);
        if (dlp_s3_manifest_add(m, &e, &err) != DLP_OK) CHECK(0);
    }
    CHECK(dlp_s3_manifest_write(m, path, &err) == DLP_OK);
    dlp_s3_manifest_close(m);
    CHECK(dlp_s3_manifest_open(&m, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_read(m, path, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_count(m) == ENTRIES);
    CHECK(dlp_s3_manifest_bytes(m) <= ENTRIES * 20 + SHARDS * (8 + 17) + 1000);
    unlink(path);
    dlp_s3_manifest_close(m);
}

#define LISTED(key, bytes) \
    "<Contents><Key>" key "</Key><Size>" bytes "</Size><ETag>&quot;1&quot;</ETag>" \
    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"

static void list_script(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    static const char head[] = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>";
    static char page[2][2000];
    int second = strstr(q->query, "continuation-token") != NULL;
    (void)user;
    if (strstr(q->query, "list-type=2") == NULL) return;
    snprintf(page[0], sizeof page[0],
             "%strue</IsTruncated><NextContinuationToken>x"
             "</NextContinuationToken>" LISTED("a", "10") LISTED("dir/", "0") LISTED(
                 "dir/b",
                 "0") "<CommonPrefixes><Prefix>other/</Prefix></CommonPrefixes></ListBucketResult>",
             head);
    snprintf(page[1], sizeof page[1],
             "%sfalse</IsTruncated>" LISTED("z/", "7") "</ListBucketResult>", head);
    r->status = 200;
    r->body = page[second];
    if (second && strstr(q->path, "broken")) r->body = "<ListBucketResult><Contents>";
}

/* Objects, but no directories and prefixes; a page that fails leaves nothing behind. */
static void manifest__of_a_list__objects_with_their_sizes(void) {
    static const dlp_s3_entry want[3] = {{"a", DLP_S3_WHOLE, 10, 0, "\"1\""},
                                         {"dir/b", DLP_S3_WHOLE, DLP_S3_EMPTY, 0, "\"1\""},
                                         {"z/", DLP_S3_WHOLE, 7, 0, "\"1\""}};
    s3_mock *lists = s3_mock_start();
    dlp_s3 *s3;
    dlp_s3_io *io = NULL;
    dlp_s3_manifest *m = NULL;
    dlp_s3_list_desc good = {.bucket = "lists"}, broken = {.bucket = "broken"};
    dlp_s3_error err;
    dlp_s3_entry e;
    lists->script = list_script;
    s3 = world_client(lists->url, 0);
    CHECK(dlp_s3_io_open(&io, s3, &err) == DLP_OK && dlp_s3_manifest_open(&m, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_list(m, io, &good, &err) == DLP_OK);
    CHECK(dlp_s3_manifest_count(m) == 3);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(dlp_s3_manifest_get(m, i, &e) == DLP_OK && same_entry(&e, &want[i]));
    CHECK(dlp_s3_manifest_list(m, io, &broken, &err) < 0 && err.message[0] != 0);
    CHECK(dlp_s3_manifest_count(m) == 3 && dlp_s3_manifest_add(m, &want[0], &err) == DLP_OK);
    dlp_s3_manifest_close(m);
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(lists);
}

/* ---- items ---- */

static void items__every_topology__as_from_memory(void) {
    for (int gone = 0; gone < 2; gone++) {
        world w;
        outcome want, got;
        dlp_source *source;
        dlp_loader_desc d = world_loader();
        world_open(&w, gone);
        d.epochs = 2;
        d.workers.on_error = gone ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_RAISE;
        world_memory(&d, &w);
        outcome_run(&d, &want);
        CHECK(want.rc == DLP_END && want.n == 40 && (want.skips > 0) == gone);
        source = world_source(&w, client);
        for (int kind = gone; kind < WORLD_KINDS; kind += 1 + 2 * gone + (getenv("SHORT") != 0)) {
            d = world_loader();
            d.epochs = 2;
            d.workers.on_error = gone ? DLP_ON_ERROR_REPLACE : DLP_ON_ERROR_RAISE;
            world_kind(&d, kind);
            source_own(&d, source);
            s3_mock_forget(mock);
            outcome_run(&d, &got);
            CHECK(outcome_same(&got, &want, gone ? "with gaps" : "items", kind));
        }
        CHECK(dlp_source_close(source) == DLP_OK);
        dlp_s3_manifest_close(w.manifest);
    }
}

/* The client takes fewer requests at once than workers have items: the others wait for room. */
static void items__client_is_full__wait_for_room(void) {
    dlp_s3_desc desc = {.endpoint = mock->url,
                        .access_key = "AKIDEXAMPLE",
                        .secret_key = "secret",
                        .max_requests = 2};
    dlp_s3_manifest *m = chunks_manifest(0);
    dlp_chunks_desc c = chunks_desc(1, 0);
    dlp_source *source;
    dlp_s3 *narrow = NULL;
    outcome want, got;
    world w;
    world_open(&w, 0);
    CHECK(dlp_s3_open(&narrow, &desc, NULL) == DLP_OK);
    source = world_source(&w, narrow);
    for (int kind = 2; kind < WORLD_KINDS; kind += 4) {
        dlp_loader_desc d = world_loader();
        world_memory(&d, &w);
        outcome_run(&d, &want);
        d = world_loader();
        d.shuffle = 1;
        world_kind(&d, kind);
        source_own(&d, source);
        outcome_run(&d, &got);
        CHECK(outcome_same(&got, &want, "narrow", kind));
    }
    CHECK(dlp_source_close(source) == DLP_OK);
    c.n_fields = 1;
    c.load = chunks_first;
    chunks_run(&c, &want);
    source = chunks_source(narrow, m, 0);
    c.source = source;
    c.load = NULL;
    chunks_run(&c, &got);
    CHECK(outcome_same(&got, &want, "narrow chunks", 0));
    CHECK(dlp_source_close(source) == DLP_OK && dlp_s3_close(narrow) == DLP_OK);
    dlp_s3_manifest_close(m);
    dlp_s3_manifest_close(w.manifest);
}

/* A missing object: left out, or an error that says which, and what the server said. */
static void items__no_such_key__by_policy_and_by_name(void) {
    world w;
    outcome want, got;
    dlp_source *source;
    world_open(&w, 1);
    source = world_source(&w, client);
    for (int kind = 0; kind < 3; kind++) {
        dlp_loader_desc d = world_loader();
        world_memory(&d, &w);
        d.workers.on_error = DLP_ON_ERROR_DROP;
        outcome_run(&d, &want);
        d = world_loader();
        d.workers.on_error = DLP_ON_ERROR_DROP;
        world_kind(&d, kind);
        source_own(&d, source);
        s3_mock_forget(mock);
        outcome_run(&d, &got);
        CHECK(outcome_same(&got, &want, "left out", kind) && got.skips == 6);
        d.workers.on_error = DLP_ON_ERROR_RAISE;
        d.shuffle = 0;
        outcome_run(&d, &got);
        CHECK(got.rc == DLP_ERR_CALLBACK && got.err.has_item && got.err.index == 7);
        CHECK(strstr(got.err.message, "s3://photos/gone/7: HTTP 404 NoSuchKey (request MOCK") != 0);
    }
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

/* Control bytes of a key begin no new line in a message. */
static void words__key_with_control_bytes__one_line(void) {
    char text[200];
    inside_s3_place("photos",
                    "a\nb\x1b"
                    "c",
                    text, sizeof text);
    CHECK(strcmp(text, "s3://photos/a?b?c") == 0);
}

/* A few items of one shard, all at once: a pipe of one batch. Returns its requests. */
static int shard_run(const dlp_s3_entry *e, int n, dlp_s3_source_desc *sd, outcome *out) {
    dlp_source *source = NULL;
    dlp_s3_manifest *m = NULL;
    dlp_s3_error err;
    dlp_loader_desc d = {.batch_size = (uint32_t)n,
                         .num_workers = 1,
                         .fetcher = DLP_FETCH_ASYNC,
                         .in_flight = 32,
                         .workers = {.on_error = DLP_ON_ERROR_DROP}};
    CHECK(dlp_s3_manifest_open(&m, &err) == DLP_OK);
    for (int i = 0; i < n; i++) CHECK(dlp_s3_manifest_add(m, &e[i], &err) == DLP_OK);
    sd->s3 = client;
    sd->bucket = "photos";
    sd->manifest = m;
    sd->fields = &world_field;
    sd->n_fields = 1;
    sd->in_flight = 32;
    CHECK(dlp_s3_source_open(&source, sd, &err) == DLP_OK);
    source_own(&d, source);
    s3_mock_forget(mock);
    outcome_run(&d, out);
    CHECK(out->rc == DLP_END);
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
    return s3_mock_count(mock, NULL);
}

static void neighbours__near_enough__one_request(void) {
    dlp_s3_entry e[10];
    dlp_s3_source_desc gaps = {.gap_bytes = 0}, none = {.gap_bytes = DLP_NONE},
                       small = {.joint_bytes = 1400}, narrow = {.gap_bytes = 50};
    s3_mock_request q;
    outcome want, got;
    for (int i = 0; i < 10; i++) /* backwards, with gaps of 100 bytes */
        e[i] = (dlp_s3_entry){"shards/1", (uint64_t)(9 - i) * 400, 300, 0, NULL};
    CHECK(shard_run(e, 10, &none, &want) == 10);
    CHECK(shard_run(e, 10, &gaps, &got) == 1);
    CHECK(s3_mock_seen(mock, 0, &q) && q.has_range && q.first == 0 && q.last == 9 * 400 + 299);
    CHECK(outcome_same(&got, &want, "joint", 0));
    CHECK(shard_run(e, 10, &narrow, &got) == 10);
    CHECK(outcome_same(&got, &want, "narrow", 0));
    CHECK(shard_run(e, 10, &small, &got) == 4); /* 1100 bytes take three */
    CHECK(outcome_same(&got, &want, "small", 0));
    e[4].offset += 150; /* into its neighbour */
    CHECK(shard_run(e, 10, &none, &want) == 10 && shard_run(e, 10, &gaps, &got) == 2);
    CHECK(outcome_same(&got, &want, "overlap", 0));
    e[4] = e[3]; /* the same twice */
    CHECK(shard_run(e, 10, &none, &want) == 10 && shard_run(e, 10, &gaps, &got) == 2);
    CHECK(outcome_same(&got, &want, "twice", 0));
    e[0] = (dlp_s3_entry){"shards/1", 209000, 0, 0, NULL};    /* to the end: nobody knows how far */
    e[1] = (dlp_s3_entry){"shards/3", 8 * 400, 300, 0, NULL}; /* another object */
    CHECK(shard_run(e, 10, &none, &want) == 10 && shard_run(e, 10, &gaps, &got) == 4);
    CHECK(outcome_same(&got, &want, "kinds", 0));
}

/* A joint request of more than the client fetches at once: in parts, side by side. */
static void neighbours__more_than_a_part__in_parts(void) {
    dlp_s3_desc desc = {.endpoint = mock->url,
                        .access_key = "AKIDEXAMPLE",
                        .secret_key = "secret",
                        .part_bytes = 65536,
                        .hedge_percent = -1};
    dlp_s3_source_desc none = {.gap_bytes = DLP_NONE}, gaps = {.gap_bytes = 30000};
    dlp_s3 *whole = client;
    dlp_s3_entry e[10];
    outcome want, got;
    for (int i = 0; i < 10; i++)
        e[i] = (dlp_s3_entry){"shards/1", (uint64_t)i * 20000, 5500, 0, NULL};
    CHECK(dlp_s3_open(&client, &desc, NULL) == DLP_OK);
    CHECK(shard_run(e, 10, &none, &want) == 10);
    CHECK(shard_run(e, 10, &gaps, &got) == 3);
    CHECK(outcome_same(&got, &want, "in parts", 0));
    CHECK(dlp_s3_close(client) == DLP_OK);
    client = whole;
}

/* One range is past the object's end: the joint request fails, each is asked for by itself, and
   only that one has failed. */
static void neighbours__one_is_bad__the_others_are_not(void) {
    dlp_s3_entry e[6];
    dlp_s3_source_desc none = {.gap_bytes = DLP_NONE}, gaps = {.gap_bytes = 0};
    outcome want, got;
    for (int i = 0; i < 6; i++)
        e[i] = (dlp_s3_entry){"shards/1", 208000 + (uint64_t)i * 400, 300, 0, NULL};
    CHECK(shard_run(e, 6, &none, &want) >= 6);
    CHECK(shard_run(e, 6, &gaps, &got) >= 7);
    CHECK(outcome_same(&got, &want, "one is bad", 0) && got.skips == 1);
}

/* ---- sizes ---- */

static int any_version;

static int one_item(const dlp_s3_entry *e, const dlp_field *field, int fetcher, dlp_error *err) {
    dlp_s3_manifest *m = NULL;
    dlp_source *source = NULL;
    dlp_s3_source_desc sd = {.s3 = client, .bucket = "photos", .fields = field, .n_fields = 1};
    dlp_loader_desc d = {.batch_size = 1, .num_workers = 1, .fetcher = fetcher};
    outcome out;
    CHECK(dlp_s3_manifest_open(&m, NULL) == DLP_OK);
    CHECK(dlp_s3_manifest_add(m, e, NULL) == DLP_OK);
    sd.manifest = m;
    sd.any_version = any_version;
    CHECK(dlp_s3_source_open(&source, &sd, NULL) == DLP_OK);
    source_own(&d, source);
    outcome_run(&d, &out);
    *err = out.err;
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
    return out.rc;
}

static void sizes__other_than_promised__named(void) {
    static const dlp_field fixed = {"f", DLP_U8, 1, {600}, 0, 0};
    static const dlp_field odd = {"f", DLP_U8, 2, {9, 7}, 1, 0};
    static const dlp_field small = {"f", DLP_U8, 1, {100}, 1, 0};
    dlp_error e;
    s3_mock_object(mock, "/photos/six", 600);
    for (int fetcher = 0; fetcher <= DLP_FETCH_ASYNC; fetcher += DLP_FETCH_ASYNC) {
        CHECK(one_item(&(dlp_s3_entry){"six", 0, 0, 0, NULL}, &fixed, fetcher, &e) == DLP_END);
        CHECK(one_item(&(dlp_s3_entry){"six", 0, 600, 0, NULL}, &fixed, fetcher, &e) == DLP_END);
        CHECK(one_item(&(dlp_s3_entry){"six", 100, 0, 0, NULL}, &fixed, fetcher, &e) ==
              DLP_ERR_LENGTH);
        CHECK(strstr(e.message, "s3://photos/six: has 500 bytes, the field takes 600") != NULL);
        CHECK(one_item(&(dlp_s3_entry){"six", 0, 20, 0, NULL}, &fixed, fetcher, &e) ==
              DLP_ERR_LENGTH);
        CHECK(one_item(&(dlp_s3_entry){"six", 0, 0, 0, NULL}, &small, fetcher, &e) ==
              DLP_ERR_LENGTH);
        CHECK(strstr(e.message, "s3://photos/six") != NULL);
        CHECK(one_item(&(dlp_s3_entry){"six", 0, 62, 0, NULL}, &odd, fetcher, &e) ==
              DLP_ERR_LENGTH);
        CHECK(strstr(e.message, "62 bytes are not whole rows of 7") != NULL);
        CHECK(one_item(&(dlp_s3_entry){"six", DLP_S3_WHOLE, 601, 0, NULL}, &world_field, fetcher,
                       &e) == DLP_ERR_CALLBACK);
        CHECK(strstr(e.message, "six: has 600 bytes, the manifest says 601") != NULL);
        CHECK(one_item(&(dlp_s3_entry){"six", DLP_S3_WHOLE, 599, 0, NULL}, &world_field, fetcher,
                       &e) == DLP_ERR_CALLBACK);
        CHECK(strstr(e.message, "six: has 600 bytes, the manifest says 599") != NULL);
        CHECK(one_item(&(dlp_s3_entry){"six", 500, 200, 0, NULL}, &world_field, fetcher, &e) ==
              DLP_ERR_LENGTH);
        CHECK(strstr(e.message, "s3://photos/six bytes 500-699: ") != NULL);
    }
}

static int sum_of_bytes(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    uint64_t sum = n;
    (void)user;
    (void)state;
    for (uint64_t i = 0; i < n; i++) sum += ((const uint8_t *)bytes)[i];
    memcpy(item->data[0], &sum, sizeof sum);
    return 0;
}

/* One empty object among others: its length is known, so no max_bytes is asked for. */
static void sizes__an_empty_object__known(void) {
    static const dlp_field sum = {"sum", DLP_U64, 0, {0}, 0, 0};
    static const dlp_s3_entry entries[] = {{"six", DLP_S3_WHOLE, 600, 0, NULL},
                                           {"nothing", DLP_S3_WHOLE, DLP_S3_EMPTY, 0, NULL}};
    dlp_s3_source_desc sd = {
        .s3 = client, .bucket = "photos", .fields = &sum, .n_fields = 1, .decode = sum_of_bytes};
    dlp_s3_manifest *m = NULL;
    s3_mock_object(mock, "/photos/six", 600);
    for (int fetcher = 0; fetcher <= DLP_FETCH_ASYNC; fetcher += DLP_FETCH_ASYNC)
        for (int full = 0; full < 2; full++) {
            dlp_loader_desc d = {.batch_size = 2, .num_workers = 1, .fetcher = fetcher};
            dlp_source *source = NULL;
            dlp_s3_error err;
            outcome out;
            s3_mock_object(mock, "/photos/nothing", full ? 3 : 0);
            CHECK(dlp_s3_manifest_open(&m, NULL) == DLP_OK);
            for (int i = 0; i < 2; i++) CHECK(dlp_s3_manifest_add(m, &entries[i], NULL) == DLP_OK);
            sd.manifest = m;
            CHECK(dlp_s3_source_open(&source, &sd, &err) == DLP_OK);
            source_own(&d, source);
            outcome_run(&d, &out);
            CHECK(out.rc == (full ? DLP_ERR_CALLBACK : DLP_END) && out.n == !full);
            CHECK(!full || strstr(out.err.message, "has 3 bytes, the manifest says 0"));
            CHECK(dlp_source_close(source) == DLP_OK);
            dlp_s3_manifest_close(m);
        }
}

/* The object is overwritten by one of the same size: after the list, and between epochs. */
static void versions__other_than_the_manifest__named(void) {
    static const dlp_field fixed = {"f", DLP_U8, 1, {700}, 0, 0};
    char etag[32];
    dlp_s3_entry e = {"seven", DLP_S3_WHOLE, 700, 0, etag};
    dlp_error err;
    snprintf(etag, sizeof etag, "\"%016" PRIx64 "\"", s3_mock_seed("/photos/seven", 1));
    s3_mock_object(mock, "/photos/seven", 700);
    for (int fetcher = 0; fetcher <= DLP_FETCH_ASYNC; fetcher += DLP_FETCH_ASYNC) {
        for (int kind = 0; kind < 2; kind++) {
            s3_mock_change(mock, "/photos/seven", 1);
            CHECK(one_item(&e, &fixed, fetcher, &err) == DLP_END);
            s3_mock_change(mock, "/photos/seven", 2);
            CHECK(one_item(&e, &fixed, fetcher, &err) == DLP_ERR_CALLBACK);
            CHECK(strstr(err.message, "s3://photos/seven") != NULL);
            CHECK(strstr(err.message, "overwritten since it was listed") &&
                  strstr(err.message, "any_version"));
            e.offset = kind ? DLP_S3_WHOLE : 0; /* as a range */
        }
    }
    any_version = 1;
    CHECK(one_item(&e, &fixed, DLP_FETCH_ASYNC, &err) == DLP_END);
    any_version = 0;
}

/* A proxy marks ETags as weak, or strips them; it may also find the list's ETag, which is strong,
   too strong for its own. A whole object is still the one that was listed; a range may be another.
   */
static void versions__etag_weak_or_stripped__whole_objects_come(void) {
    static const dlp_field fixed = {"f", DLP_U8, 1, {700}, 0, 0};
    char etag[32], weak[40];
    dlp_s3_entry whole = {"eight", DLP_S3_WHOLE, 700, 0, etag}, range = {"eight", 0, 700, 0, etag};
    dlp_error err;
    snprintf(etag, sizeof etag, "\"%016" PRIx64 "\"", s3_mock_seed("/photos/eight", 0));
    snprintf(weak, sizeof weak, "W/%s", etag);
    s3_mock_object(mock, "/photos/eight", 700);
    for (int strict = 0; strict < 2; strict++) {
        for (int fetcher = 0; fetcher <= DLP_FETCH_ASYNC; fetcher += DLP_FETCH_ASYNC) {
            s3_mock_forget(mock);
            s3_mock_on(mock, NULL, -1, (s3_mock_reply){.etag = weak, .ignore_match = !strict});
            CHECK(one_item(&whole, &fixed, fetcher, &err) == DLP_END);
            CHECK(s3_mock_count(mock, NULL) == 1 + strict);
            CHECK(one_item(&range, &fixed, fetcher, &err) == DLP_ERR_CALLBACK);
            CHECK(strstr(err.message, strict ? "it was listed" : "its ETag is weak"));
            CHECK(strstr(err.message, "s3://photos/eight") && strstr(err.message, "any_version"));
        }
        s3_mock_forget(mock); /* it is another one, and still no other */
        s3_mock_on(mock, NULL, -1, (s3_mock_reply){.etag = "W/\"other\"", .ignore_match = !strict});
        CHECK(one_item(&whole, &fixed, DLP_FETCH_ASYNC, &err) == DLP_ERR_CALLBACK);
        CHECK(strstr(err.message, "overwritten since it was listed") &&
              !strstr(err.message, "if_"));
        s3_mock_forget(mock);
        s3_mock_on(mock, NULL, -1, (s3_mock_reply){.etag = "", .ignore_match = 1});
        CHECK(one_item(strict ? &whole : &range, &fixed, 0, &err) == DLP_ERR_CALLBACK);
        CHECK(strstr(err.message, "no ETag") && strstr(err.message, "list") &&
              strstr(err.message, "any_version") && !strstr(err.message, "if_match"));
    }
    any_version = 1;
    CHECK(one_item(&whole, &fixed, 0, &err) == DLP_END);
    any_version = 0;
    s3_mock_forget(mock);
}

/* ---- states know their objects ---- */

/* Open a pipe of two entries, as items or as parts, and write its state to *to, or resume it from
   *from. Returns the code. */
static int two_items(const dlp_s3_entry *e, const dlp_s3_source_desc *desc, int parts,
                     dlp_state *to, const dlp_state *from, dlp_error *err) {
    dlp_s3_source_desc sd = *desc;
    dlp_s3_manifest *m = NULL;
    dlp_source *source = NULL;
    dlp_pipe *p = NULL;
    int rc;
    CHECK(dlp_s3_manifest_open(&m, NULL) == DLP_OK);
    for (int i = 0; i < 2; i++) CHECK(dlp_s3_manifest_add(m, &e[i], NULL) == DLP_OK);
    sd.s3 = client;
    sd.bucket = "photos";
    sd.manifest = m;
    sd.fields = &world_field;
    sd.n_fields = 1;
    CHECK(dlp_s3_source_open(&source, &sd, NULL) == DLP_OK);
    const dlp_pipe_desc run = {.resume = from};
    const dlp_node batch = {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}};
    const dlp_node items[] = {{.name = "list", .verb = DLP_LIST},
                              {.name = "fetch",
                               .verb = DLP_FETCH,
                               .fetch = {.source = source},
                               .workers = {.num_workers = 1}},
                              batch};
    const dlp_node shards[] = {
        {.name = "list", .verb = DLP_LIST},
        {.name = "load", .verb = DLP_LOAD, .load = {.source = source}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = world_fetch, .fields = &world_field, .n_fields = 1}},
        batch};
    rc = parts ? dlp_pipe_open(&p, DLP_NODES(shards), &run, err)
               : dlp_pipe_open(&p, DLP_NODES(items), &run, err);
    if (rc == DLP_OK && to != NULL) CHECK(dlp_pipe_state(p, NULL, to) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
    return rc;
}

/* Keys, their order, lengths and ETags. Another prefix of all keys is no other name. */
static void versions__in_a_state__only_with_its_objects(void) {
    const dlp_s3_entry two[2] = {{"x/a/1", DLP_S3_WHOLE, 70, 1, "\"e1\""},
                                 {"x/b/1", DLP_S3_WHOLE, 80, 1, "\"e2\""}};
    const dlp_s3_source_desc plain = {.in_flight = 1}, any = {.any_version = 1},
                             moved = {.moved = 1};
    for (int parts = 0; parts < 2; parts++) {
        dlp_state state;
        dlp_error err;
        dlp_s3_entry e[2] = {two[0], two[1]};
        CHECK(two_items(two, &plain, parts, &state, NULL, &err) == DLP_OK);
        CHECK(two_items(two, &plain, parts, NULL, &state, &err) == DLP_OK);
        e[0].key = "y/z/a/1";
        e[1].key = "y/z/b/1";
        if (!parts) CHECK(two_items(e, &plain, parts, NULL, &state, &err) == DLP_OK);
        e[1].key = "y/z/c/1";
        CHECK(two_items(e, &plain, parts, NULL, &state, &err) == DLP_ERR_RESUME &&
              strcmp(err.field, "source.names") == 0);
        if (!parts) /* the number of a manifest of parts has whole keys, too */
            CHECK(two_items(e, &moved, parts, NULL, &state, &err) == DLP_OK);
        e[0].key = two[1].key;
        e[1].key = two[0].key;
        CHECK(two_items(e, &plain, parts, NULL, &state, &err) == DLP_ERR_RESUME &&
              strcmp(err.field, "source.order") == 0);
        e[0] = two[0];
        e[1] = two[1];
        e[1].length = 81;
        CHECK(two_items(e, &plain, parts, NULL, &state, &err) == DLP_ERR_RESUME &&
              strcmp(err.field, "source.sizes") == 0);
        e[1].length = 80;
        e[1].etag = "\"e3\"";
        CHECK(two_items(e, &plain, parts, NULL, &state, &err) == DLP_ERR_RESUME &&
              strcmp(err.field, "source.content") == 0);
        CHECK(two_items(e, &any, parts, NULL, &state, &err) == DLP_OK);
        e[1].etag = "";
        CHECK(two_items(e, &plain, parts, NULL, &state, &err) == DLP_OK);
    }
}

/* ---- decode ---- */

typedef struct decoder {
    int inits, exits;
} decoder;

static int decoder_init(void *user, int worker, void **state) {
    (void)worker;
    __atomic_add_fetch(&((decoder *)user)->inits, 1, __ATOMIC_RELAXED);
    *state = user;
    return 0;
}

static void decoder_exit(void *user, int worker, void *state) {
    (void)worker;
    CHECK(state == user);
    __atomic_add_fetch(&((decoder *)user)->exits, 1, __ATOMIC_RELAXED);
}

static int decoder_run(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    uint64_t sum[2] = {digest_add(n, bytes, n), n};
    CHECK(state == user);
    memcpy(item->data[0], sum, sizeof sum);
    return item->index == 17 ? DLP_SKIP : 0;
}

/* A small object of known size is asked for without a range, however large others may be. */
static void sizes__known__no_range(void) {
    static const dlp_field large = {"f", DLP_U8, 1, {9 << 20}, 1, 0};
    s3_mock_request q;
    dlp_error e;
    s3_mock_object(mock, "/photos/six", 600);
    for (int fetcher = 0; fetcher <= DLP_FETCH_ASYNC; fetcher += DLP_FETCH_ASYNC) {
        s3_mock_forget(mock);
        CHECK(one_item(&(dlp_s3_entry){"six", DLP_S3_WHOLE, 600, 0, NULL}, &large, fetcher, &e) ==
              DLP_END);
        CHECK(s3_mock_count(mock, NULL) == 1 && s3_mock_seen(mock, 0, &q) && !q.has_range);
    }
    s3_mock_forget(mock);
}

static void decode__buffers__sees_all_bytes(void) {
    static const dlp_field sums = {"sums", DLP_U64, 1, {2}, 0, 0};
    decoder counts = {0, 0};
    dlp_s3_source_desc sd = {.s3 = client,
                             .bucket = "photos",
                             .fields = &sums,
                             .n_fields = 1,
                             .decode = decoder_run,
                             .user = &counts,
                             .max_bytes = WORLD_ROW,
                             .worker_init = decoder_init,
                             .worker_exit = decoder_exit};
    dlp_source *source = NULL;
    dlp_s3_error err;
    world w;
    world_open(&w, 0);
    sd.manifest = w.manifest;
    CHECK(dlp_s3_source_open(&source, &sd, &err) == DLP_OK);
    for (int kind = 0; kind < 3; kind++) {
        dlp_loader_desc d = world_loader();
        dlp_pipe *p = NULL;
        dlp_batch *b;
        uint64_t rows = 0, wrong = 0;
        static uint8_t bytes[WORLD_ROW];
        world_kind(&d, kind);
        source_own(&d, source);
        d.workers.on_error = DLP_ON_ERROR_DROP;
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
            if (rows == 0) CHECK(dlp_source_close(source) == DLP_ERR_BUSY);
            for (uint32_t r = 0; r < b->count; r++, rows++) {
                const uint64_t *got = (const uint64_t *)b->fields[0].data + 2 * r;
                uint64_t i = b->index[r], n = w.item[i].n;
                s3_mock_fill(w.item[i].path, 0, w.item[i].at, bytes, n);
                if (b->valid[r] == 0)
                    wrong += i != 17;
                else
                    wrong += got[1] != n || got[0] != digest_add(n, bytes, n);
            }
            dlp_pipe_release(p, b);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(rows == WORLD && wrong == 0);
    }
    CHECK(counts.inits == 6 && counts.exits == 6);
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

/* ---- resume, stop ---- */

static void resume__in_the_middle__goes_on(void) {
    world w;
    outcome want, got;
    dlp_source *source;
    dlp_loader_desc d = world_loader();
    dlp_state state;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    world_open(&w, 0);
    source = world_source(&w, client);
    world_kind(&d, 2);
    source_own(&d, source);
    outcome_run(&d, &want);
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    for (int i = 0; i < 9; i++) {
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
        if (i == 8) CHECK(dlp_pipe_state(p, b, &state) == DLP_OK);
        dlp_pipe_release(p, b);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    world_kind(&d, 4);
    source_own(&d, source);
    d.pipe.resume = &state;
    outcome_run(&d, &got);
    CHECK(got.n == want.n - 9 && memcmp(got.of, want.of + 9, (size_t)got.n * sizeof *got.of) == 0);
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

/* Servers that never answer: a pipe that is closed does not wait for them. */
static void stop__server_hangs__within_a_second(void) {
    s3_mock *hangs = s3_mock_start();
    dlp_s3 *s3 = world_client(hangs->url, 0);
    dlp_source *source;
    world w;
    s3_mock_on(hangs, NULL, -1, (s3_mock_reply){.delay_ms = 60000});
    world_open(&w, 0);
    source = world_source(&w, s3);
    for (int kind = 0; kind < 3; kind++) {
        dlp_loader_desc d = world_loader();
        dlp_pipe *p = NULL;
        dlp_batch *b;
        uint64_t began;
        world_kind(&d, kind);
        source_own(&d, source);
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 20) == DLP_TIMEOUT);
        began = test_now_ns();
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK_SOON(test_now_ns() - began < 900000000u);
    }
    CHECK(dlp_source_close(source) == DLP_OK);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
    s3_mock_stop(hangs);
}

/* Stopped at any moment: nothing is left, nothing is said to have failed. */
static void stop__any_moment__clean(uint64_t *random) {
    world w;
    dlp_source *source;
    world_open(&w, 0);
    source = world_source(&w, client);
    for (int i = 0; i < test_share(24, 200); i++) {
        dlp_loader_desc d = world_loader();
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        int rc = DLP_OK;
        world_kind(&d, i % WORLD_KINDS);
        source_own(&d, source);
        d.epochs = DLP_FOREVER;
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        for (uint32_t n = test_pick(random, 4); n > 0 && rc == DLP_OK; n--) {
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            if (rc == DLP_OK) dlp_pipe_release(p, b);
        }
        test_pause(test_pick(random, 2000) * 1000u);
        dlp_pipe_stop(p);
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_STOPPED);
        CHECK(dlp_pipe_error(p)->code == 0);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

/* ---- parts ---- */

static dlp_source *parts_source(const dlp_s3_manifest *m, const char *bucket) {
    dlp_s3_source_desc d = {.s3 = client, .bucket = bucket, .manifest = m};
    dlp_source *source = NULL;
    dlp_s3_error err;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_OK);
    return source;
}

static void parts__read_into_cells__as_from_memory(void) {
    static const uint64_t items[PARTS] = {1, 2, 3, 4, 5, 6};
    dlp_s3_manifest *m = parts_manifest();
    dlp_source *source = parts_source(m, "photos");
    outcome want, got;
    dlp_loader_desc d = parts_desc(items);
    d.parts.manifest_id = dlp_s3_manifest_id(m);
    parts_run(&d, &want);
    CHECK(want.rc == DLP_END && want.n == 12);
    for (int workers = 0; workers < 4; workers += 3) {
        d = parts_desc(NULL);
        d.parts.n_parts = d.parts.max_part_bytes = 0;
        d.parts.load = NULL;
        d.parts.workers.num_workers = workers;
        d.parts.source = source;
        parts_run(&d, &got);
        CHECK(outcome_same(&got, &want, "parts", workers));
    }
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
}

/* load.source in a table: without makers, before a filter, and where load counts the items. */
static int keeps_most(void *user, const dlp_item *it) {
    (void)user;
    return *(const uint8_t *)it->data[0] % 4 != 1;
}

static int parts_memory_counted(void *user, dlp_part *part) {
    part->items = part->index + 1;
    return parts_memory(user, part);
}

static int parts_counted(void *user, dlp_part *part) {
    const int rc = dlp_s3_part_load(user, part);
    part->items = part->index + 1;
    return rc;
}

static int table_open(const dlp_source *source, int kind, uint64_t n_items, dlp_pipe **p,
                      dlp_error *err) {
    dlp_node n[5] = {
        {.name = "shards", .verb = DLP_LIST, .list = {.n_items = n_items, .shuffle = 1}},
        {.name = "load", .verb = DLP_LOAD, .load = {.source = source, .shuffle_items = 1}},
        {.name = "rows",
         .verb = DLP_FETCH,
         .fetch = {.fetch = parts_fetch, .fields = &parts_field, .n_fields = 1}},
        {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keeps_most}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}}};
    const dlp_pipe_desc d = {.epochs = 2, .streams = 2};
    if (kind == 0) n[3] = n[4];
    n[1].workers.num_workers = 2;
    if (source == NULL) {
        n[1].load.load = parts_memory_counted;
        n[1].load.max_part_bytes = PARTS * PART_ROW;
    }
    if (source == NULL || kind == 2) n[1].load.max_items = PARTS;
    if (source != NULL && kind == 2) {
        n[1].load.load = parts_counted;
        n[1].load.user = (void *)(uintptr_t)source;
    }
    return dlp_pipe_open(p, n, kind == 0 ? 4 : 5, &d, err);
}

static void parts__in_a_table__as_from_memory(void) {
    dlp_s3_manifest *m = parts_manifest();
    dlp_source *source = parts_source(m, "photos"), none = {.close = NULL};
    dlp_pipe *p = NULL;
    dlp_error err;
    outcome want, got;
    for (int kind = 1; kind < 3; kind++) {
        CHECK(table_open(NULL, kind, PARTS, &p, &err) == DLP_OK);
        memset(&want, 0, sizeof want);
        if (p) outcome_take(p, 1000, &want);
        CHECK(want.rc == DLP_END && want.n > 4);
        CHECK(table_open(source, kind, kind == 1 ? 0 : PARTS, &p, &err) == DLP_OK);
        memset(&got, 0, sizeof got);
        if (p) outcome_take(p, 1000, &got);
        CHECK(outcome_same(&got, &want, "table", kind));
    }
    CHECK(table_open(source, 0, 0, &p, &err) == DLP_OK);
    memset(&got, 0, sizeof got);
    if (p) outcome_take(p, 1000, &got);
    CHECK(got.rc == DLP_END && got.n == 12);
    CHECK(table_open(source, 1, PARTS + 1, &p, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message,
                 "list.n_items is 7, and the source of \"load\" has 6 parts; set 0, which "
                 "takes that number") == 0);
    CHECK(table_open(&none, 1, PARTS, &p, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message,
                 "the source of \"load\" has no parts; set load.load, or give the source "
                 "to a fetch node") == 0);
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
}

static void parts__not_there__named(void) {
    dlp_s3_manifest *m = parts_manifest();
    dlp_source *source = parts_source(m, "nothing");
    dlp_loader_desc d = parts_desc(NULL);
    outcome got;
    d.parts.source = source;
    d.parts.load = NULL;
    d.shuffle = 0;
    parts_run(&d, &got);
    CHECK(got.rc == DLP_ERR_CALLBACK);
    CHECK(strstr(got.err.message, "s3://nothing/parts/") && strstr(got.err.message, "NoSuchKey"));
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
}

static int parts_asked(void) { /* not for what cases before have left under way */
    s3_mock_request q;
    int n = 0;
    for (int i = 0; s3_mock_seen(mock, i, &q); i++) n += strncmp(q.path, "/photos/parts/", 14) == 0;
    return n;
}

/* Downloaded once into a folder, then read from there; with the workers of the source and its
   manifest's counts, and without. */
static void parts__downloaded__once(void) {
    static const uint64_t items[PARTS] = {1, 2, 3, 4, 5, 6};
    for (int wired = 0; wired < 2; wired++) {
        char dir[] = "/tmp/dlpipe-s3-XXXXXX", name[PARTS][8], path[64];
        dlp_s3_manifest *m = parts_manifest();
        dlp_source *source = parts_source(m, "photos");
        dlp_part_file file[PARTS];
        dlp_part_files files = {.files = file,
                                .n_files = PARTS,
                                .dir = dir,
                                .download = dlp_s3_part_download,
                                .user = source};
        outcome want, got;
        dlp_loader_desc d = parts_desc(items);
        CHECK(mkdtemp(dir) != NULL);
        for (int i = 0; i < PARTS; i++) {
            snprintf(name[i], sizeof name[i], "%d", i);
            file[i] = (dlp_part_file){name[i], 0, 0};
        }
        parts_run(&d, &want);
        if (wired) d.parts.source = source;
        d.parts.manifest_id = 0;
        d.parts.load = dlp_part_files_load;
        d.parts.user = &files;
        s3_mock_forget(mock);
        parts_run(&d, &got);
        CHECK(outcome_same(&got, &want, "downloads", wired));
        CHECK(parts_asked() == 2 * PARTS); /* HEAD, GET */
        if (wired) d.parts.items = NULL;
        parts_run(&d, &got);
        CHECK(outcome_same(&got, &want, "files", wired));
        CHECK(parts_asked() == 2 * PARTS);
        for (int i = 0; i < PARTS; i++) {
            snprintf(path, sizeof path, "%s/%d", dir, i);
            CHECK(unlink(path) == 0);
        }
        CHECK(rmdir(dir) == 0);
        CHECK(dlp_source_close(source) == DLP_OK);
        dlp_s3_manifest_close(m);
    }
}

/* ---- chunks ---- */

static void chunks__rows_of_objects__as_from_memory(void) {
    for (int shuffled = 0; shuffled < 2; shuffled++)
        for (uint32_t ranks = 0; ranks <= 3; ranks += 3) {
            dlp_s3_manifest *m[2] = {chunks_manifest(0), chunks_manifest(1)};
            dlp_source *source[2] = {chunks_source(client, m[0], 0),
                                     chunks_source(client, m[1], 1)};
            dlp_chunks_desc d = chunks_desc(shuffled, ranks);
            outcome want, got;
            chunks_run(&d, &want);
            CHECK(want.rc == DLP_END && want.n == 50);
            d.source = source[0];
            d.n_items = 0;
            d.load = chunks_both;
            d.user = source;
            s3_mock_forget(mock);
            chunks_run(&d, &got);
            CHECK(outcome_same(&got, &want, "chunks", shuffled * 10 + (int)ranks));
            for (int i = 0; i < 2; i++) {
                CHECK(dlp_source_close(source[i]) == DLP_OK);
                dlp_s3_manifest_close(m[i]);
            }
        }
}

static void chunks__wrong_source__refused(void) {
    dlp_s3_manifest *m = chunks_manifest(0);
    dlp_source *source = chunks_source(client, m, 0), none = {.close = NULL};
    dlp_chunks_desc d = chunks_desc(0, 0);
    dlp_pipe *p = NULL;
    dlp_error err;
    d.source = source;
    d.n_items = 1499;
    CHECK(dlp_chunks_open(&p, &d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.message,
                 "n_items is 1499, and the source has 1500 rows; set 0, which takes that number") ==
          0);
    d.n_items = 1500;
    d.workers.worker_user = &d;
    CHECK(dlp_chunks_open(&p, &d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "workers.worker_init") == 0);
    d.source = &none;
    CHECK(dlp_chunks_open(&p, &d, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "source") == 0);
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
}

static void chunks__object_too_short__named(void) {
    dlp_s3_manifest *m = chunks_manifest(0);
    dlp_s3_entry e = {"rows/0", 0, 200 * CHUNK_ROW, 0, NULL};
    dlp_source *source;
    dlp_chunks_desc d = chunks_desc(0, 0);
    outcome got;
    CHECK(dlp_s3_manifest_add(m, &e, NULL) == DLP_OK);
    source = chunks_source(client, m, 0);
    d.n_fields = 1;
    d.source = source;
    d.n_items = 0;
    d.load = NULL;
    chunks_run(&d, &got);
    CHECK(got.rc == DLP_ERR_CALLBACK && strstr(got.err.message, "s3://photos/rows/0 bytes ") != 0);
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
}

static void source__wrong_desc__names_the_field(void) {
    dlp_source *source = NULL;
    dlp_s3_error err;
    dlp_s3_source_desc d = {0};
    world w;
    world_open(&w, 0);
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_ERR_ARG && strstr(err.message, "s3:"));
    d.s3 = client;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_ERR_ARG && strstr(err.message, "bucket"));
    d.bucket = "b";
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_ERR_ARG && strstr(err.message, "manifest"));
    d.manifest = w.manifest;
    d.in_flight = 1025;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_ERR_ARG && strstr(err.message, "in_flight"));
    d.in_flight = 0;
    d.row_bytes = 10;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_ERR_ARG && strstr(err.message, "row_bytes"));
    d.row_bytes = 0;
    d.fields = &world_field;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_ERR_ARG && strstr(err.message, "fields"));
    d.n_fields = 1;
    d.decode = decoder_run;
    CHECK(dlp_s3_source_open(&source, &d, &err) == DLP_ERR_ARG && strstr(err.message, "max_bytes"));
    CHECK(source == NULL && dlp_source_close(NULL) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

/* Workers that wire did not set are refused, not followed into the dark. */
static void source__other_workers__refused(void) {
    world w;
    dlp_source *source;
    dlp_loader_desc d = world_loader();
    outcome got;
    world_open(&w, 0);
    source = world_source(&w, client);
    source_own(&d, source)->workers.worker_init = NULL;
    outcome_run(&d, &got);
    CHECK(got.rc == DLP_ERR_CALLBACK && strstr(got.err.message, "worker_init"));
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

/* What a manifest says is not to be had, and is no small number either. */
static void source__lengths_that_no_machine_has__saturate(void) {
    static const dlp_field sums = {"sums", DLP_U64, 1, {2}, 0, 0};
    static const uint64_t lengths[] = {UINT64_C(1) << 60, UINT64_MAX / 2, UINT64_MAX - 70,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        dlp_s3_entry e = {"a", 0, lengths[i], 0, NULL};
        dlp_s3_source_desc sd = {.s3 = client,
                                 .bucket = "photos",
                                 .fields = &sums,
                                 .n_fields = 1,
                                 .decode = decoder_run,
                                 .in_flight = 16};
        dlp_s3_manifest *m = NULL;
        dlp_source *source = NULL;
        CHECK(dlp_s3_manifest_open(&m, NULL) == DLP_OK);
        if (dlp_s3_manifest_add(m, &e, NULL) != DLP_OK) e.length = 0; /* refused is as good */
        sd.manifest = m;
        if (e.length != 0 && dlp_s3_source_open(&source, &sd, NULL) == DLP_OK)
            CHECK(dlp_s3_source_worker_bytes(source) == UINT64_MAX);
        CHECK(dlp_source_close(source) == DLP_OK);
        dlp_s3_manifest_close(m);
    }
}

/* A server that is away for a while: the pipe says so, and goes on behind it. */
static void outage__server_is_away__explained_and_survived(int kind) {
    world w;
    dlp_source *source;
    dlp_loader_desc d = world_loader();
    dlp_pipe *p = NULL;
    dlp_batch *b;
    outcome want, got;
    char text[4096];
    int waited = 0;
    memset(&got, 0, sizeof got);
    world_open(&w, 0);
    world_memory(&d, &w);
    outcome_run(&d, &want);
    d = world_loader();
    world_kind(&d, kind);
    source = world_source(&w, client);
    source_own(&d, source);
    s3_mock_away(mock, S3_MOCK_REFUSE);
    CHECK(dlp_loader_open(&p, &d, &got.err) == DLP_OK);
    do {
        CHECK(dlp_pipe_next_timeout(p, &b, 50) == DLP_TIMEOUT);
        CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
    } while (!strstr(text, "no answer from the S3 server of bucket 'photos'") && ++waited < 100);
    CHECK(waited >= 15 && waited < 100 && strstr(text, "Waits: stage 'fetch': no answer"));
    CHECK(dlp_pipe_explain(p, NULL, 0) > 0 && dlp_pipe_explain(p, text, 10) > 100);
    s3_mock_away(mock, S3_MOCK_KEEP);
    outcome_take(p, 1000, &got);
    CHECK(outcome_same(&got, &want, "away", kind));
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

int main(int argc, char **argv) {
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    manifest__lines__parsed_or_named();
    manifest__zero_bytes_and_long_lines__refused();
    manifest__written_and_read__the_same();
    manifest__connection_planted__not_followed();
    manifest__many_entries__few_bytes();
    mock = s3_mock_start();
    world_fill(mock);
    client = world_client(mock->url, 0);
    manifest__of_a_list__objects_with_their_sizes();
    source__wrong_desc__names_the_field();
    source__other_workers__refused();
    source__lengths_that_no_machine_has__saturate();
    items__every_topology__as_from_memory();
    items__client_is_full__wait_for_room();
    items__no_such_key__by_policy_and_by_name();
    words__key_with_control_bytes__one_line();
    CHECK(dlp_s3_close(client) == DLP_OK);
    s3_mock_stop(mock); /* it may have requests to read yet, of pipes that ended early */
    mock = s3_mock_start();
    world_fill(mock);
    client = world_client(mock->url, -1);
    neighbours__near_enough__one_request();
    neighbours__more_than_a_part__in_parts();
    neighbours__one_is_bad__the_others_are_not();
    sizes__other_than_promised__named();
    sizes__an_empty_object__known();
    versions__other_than_the_manifest__named();
    versions__etag_weak_or_stripped__whole_objects_come();
    versions__in_a_state__only_with_its_objects();
    sizes__known__no_range();
    decode__buffers__sees_all_bytes();
    resume__in_the_middle__goes_on();
    test_tries(stop__server_hangs__within_a_second);
    stop__any_moment__clean(&random);
    parts__read_into_cells__as_from_memory();
    parts__in_a_table__as_from_memory();
    parts__not_there__named();
    parts__downloaded__once();
    chunks__rows_of_objects__as_from_memory();
    chunks__object_too_short__named();
    chunks__wrong_source__refused();
    outage__server_is_away__explained_and_survived(0);
    outage__server_is_away__explained_and_survived(2);
    CHECK(dlp_s3_close(client) == DLP_OK);
    s3_mock_stop(mock);
    return test_end("s3_source");
}
