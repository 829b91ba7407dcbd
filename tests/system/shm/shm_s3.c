/* needs: parts split pack mix */
/* S3 as a source in worker processes: the same bytes as from memory in every topology, also when
   workers are killed with requests under way; two manifests that are mixed, filtered, shuffled and
   packed, and resumed by other ranks; parts and chunks; a stop while a server hangs.
   shm_s3 [seed] */
#define _GNU_SOURCE
#define DLPIPE_SHM_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"
#include "../../../dlpipe_s3.h"

#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/s3_mock.h"
#include "../../rig/s3_source_rig.h"

static dlp_s3 *client;
static dlp_shm_desc shm_;

static void in_processes(dlp_loader_desc *d) {
    d->workers.placement = DLP_PLACE_PROCESSES;
    d->pipe.shm = &shm_;
}

static void items__processes__as_from_memory(void) {
    world w;
    outcome want, got;
    dlp_source *source;
    dlp_loader_desc d = world_loader();
    world_open(&w, 1);
    d.workers.on_error = DLP_ON_ERROR_DROP;
    world_memory(&d, &w);
    outcome_run(&d, &want);
    CHECK(want.rc == DLP_END && want.skips == 6);
    source = world_source(&w, client);
    for (int kind = 0; kind < WORLD_KINDS; kind += 1 + (getenv("SHORT") != NULL)) {
        d = world_loader();
        d.workers.on_error = DLP_ON_ERROR_DROP;
        world_kind(&d, kind);
        source_own(&d, source);
        in_processes(&d);
        outcome_run(&d, &got);
        CHECK(outcome_same(&got, &want, "processes", kind));
    }
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

/* Kill a worker, one time of so many; a thread that copies is left. Returns whether it was. */
static int killed(dlp_pipe *p, uint64_t *random, uint32_t one_of, int before) {
    dlp_worker_stats s;
    uint32_t worker;
    if (test_pick(random, one_of) != 0) return 0;
    test_pause(test_pick(random, 1000) * 1000u);
    worker = test_pick(random, 2);
    CHECK(dlp_pipe_worker_stats(p, worker, &s) == 0);
    for (int i = 0; i < 20000 && before == 0 && s.state == DLP_WORKER_STARTING; i++) {
        test_pause(1000000);
        CHECK(dlp_pipe_worker_stats(p, worker, &s) == 0);
    }
    return s.pid > 0 && s.pid != getpid() && s.state != DLP_WORKER_STARTING &&
           kill(s.pid, SIGKILL) == 0;
}

/* Workers killed from outside, whatever they have under way; every byte is as from memory.
   server: where to tell it of a hard day, with an outage; -1: it has an easy one. */
static void kills_run(uint64_t *random, int step, int64_t epochs, int server) {
    world w;
    outcome want, got;
    dlp_source *source;
    dlp_loader_desc d = world_loader();
    world_open(&w, 0);
    d.epochs = epochs;
    world_memory(&d, &w);
    outcome_run(&d, &want);
    source = world_source(&w, client);
    for (int kind = server < 0 ? 0 : 2; kind < WORLD_KINDS; kind += step) {
        dlp_pipe *p = NULL;
        dlp_batch *b;
        int kills = 0;
        memset(&got, 0, sizeof got);
        d = world_loader();
        d.epochs = epochs;
        world_kind(&d, kind);
        source_own(&d, source);
        in_processes(&d);
        shm_.max_kills = 24;
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        while ((got.rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            got.of[got.n++] = digest_batch(b);
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
            kills += killed(p, random, 6, kills);
            if (server < 0 || got.n != want.n / 2) continue;
            world_tell(server, WORLD_AWAY);
            test_pause(getenv("SHORT") ? 500000000u : 5000000000u);
            world_tell(server, WORLD_BACK);
        }
        got.err = *dlp_pipe_error(p);
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK(kills > 0 && outcome_same(&got, &want, "kills", kind));
    }
    shm_.max_kills = 0;
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
}

static void kills__at_random__same_bytes(uint64_t *random) { kills_run(random, 2, 2, -1); }

/* Answers after 30 ms, 503 above 100 requests a second, an outage of 5 s, and workers killed. */
static void kills__throttled_and_an_outage__same_bytes(uint64_t *random, int server) {
    dlp_s3_stats before, s;
    dlp_s3_stats_get(client, &before);
    world_tell(server, WORLD_HARD);
    kills_run(random, WORLD_KINDS, 4, server);
    world_tell(server, WORLD_EASY);
    dlp_s3_stats_get(client, &s);
    printf("  a hard day: %d requests for %d objects\n", (int)(s.requests - before.requests),
           (int)(s.objects - before.objects));
    CHECK(s.requests > s.objects - before.objects + before.requests);
}

/* ---- two manifests in a table ---- */

enum { HALF = WORLD / 2, TOKENS = 300, TABLE_ROWS = 9 };

typedef struct half { /* of the objects */
    world *w;
    int from;
    dlp_s3_manifest *manifest;
    dlp_source *source;
} half;

static int half_fetch(void *user, dlp_item *it) {
    const half *h = user;
    const uint64_t i = (uint64_t)h->from + it->index;
    s3_mock_fill(h->w->item[i].path, 0, h->w->item[i].at, it->data[0], h->w->item[i].n);
    it->length[0] = h->w->item[i].n;
    return 0;
}

static void half_open(half *h, world *w, int from) {
    dlp_s3_source_desc d = {
        .s3 = client, .bucket = "photos", .fields = &world_field, .n_fields = 1};
    char key[64];
    dlp_s3_entry e;
    *h = (half){.w = w, .from = from};
    CHECK(dlp_s3_manifest_open(&h->manifest, NULL) == DLP_OK);
    for (int i = from; i < from + HALF; i++) {
        world_item(w, i, key, sizeof key, &e);
        CHECK(dlp_s3_manifest_add(h->manifest, &e, NULL) == DLP_OK);
    }
    d.manifest = h->manifest;
    CHECK(dlp_s3_source_open(&h->source, &d, NULL) == DLP_OK);
}

static int half_keep(void *user, const dlp_item *it) {
    (void)user;
    return it->length[0] % 3 != 0;
}

/* The table: out of S3 in worker processes, or out of memory. */
static int halves_open(half h[2], int s3, const dlp_pipe_desc *d, dlp_pipe **p) {
    static const uint64_t weights[2] = {7, 3};
    static const char *const from[] = {"read a", "read b", NULL};
    dlp_error err;
    dlp_node t[TABLE_ROWS] = {
        {.name = "a", .verb = DLP_LIST, .list = {.n_items = HALF, .shuffle = 1}},
        {.name = "read a", .verb = DLP_FETCH, .workers = {.num_workers = 1}},
        {.name = "b", .verb = DLP_LIST, .list = {.n_items = HALF, .shuffle = 1}},
        {.name = "read b", .verb = DLP_FETCH, .workers = {.num_workers = 1}},
        {.name = "both", .verb = DLP_MIX, .from = from, .mix = {.weights = weights}},
        {.name = "keep", .verb = DLP_FILTER, .filter = {.keep = half_keep}},
        {.name = "shuffle", .verb = DLP_WINDOW, .window = {.items = 20}},
        {.name = "cut", .verb = DLP_PACK, .pack = {.tokens = TOKENS}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 8}}};
    for (int i = 0; i < 2; i++) {
        dlp_node *n = &t[i * 2 + 1];
        if (s3)
            n->fetch = (dlp_node_fetch){.source = h[i].source, .in_flight = 6};
        else
            n->fetch = (dlp_node_fetch){
                .fetch = half_fetch, .user = &h[i], .fields = &world_field, .n_fields = 1};
        if (s3) n->workers.placement = DLP_PLACE_PROCESSES;
    }
    if (dlp_pipe_open(p, t, TABLE_ROWS, d, &err) == DLP_OK) return 1;
    printf("  %s %s: %s\n", err.stage, err.field, err.message);
    return 0;
}

/* Take `most` batches, or all of the epochs; kill workers meanwhile. kills: NULL: none. Returns the
   code of next. */
static int halves_take(dlp_pipe *p, int most, uint64_t *random, int *kills, outcome *to) {
    dlp_batch *b;
    for (to->rc = DLP_OK; to->n < most;) {
        if ((to->rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) break;
        to->of[to->n++] = digest_batch(b);
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        if (kills != NULL) *kills += killed(p, random, 2, *kills);
    }
    to->err = *dlp_pipe_error(p);
    if (to->rc < 0) printf("  %s: %s\n", to->err.stage, to->err.message);
    return to->rc;
}

/* One rank takes some batches, and is saved. Two others go on. Every batch is as from memory. */
static void two_manifests__mixed_and_packed__as_from_memory(uint64_t *random, int server) {
    enum { STEPS = 24, FIRST = 9, MOST = 127 };
    static outcome got[2][3];
    dlp_s3_stats before, s;
    world w;
    half h[2];
    int kills = 0;
    world_open(&w, 0);
    half_open(&h[0], &w, 0);
    half_open(&h[1], &w, HALF);
    dlp_s3_stats_get(client, &before);
    world_tell(server, WORLD_HARD);
    memset(got, 0, sizeof got);
    shm_.max_kills = 24;
    for (int s3 = 0; s3 < 2; s3++) {
        dlp_state state;
        for (uint32_t rank = 0; rank < 3; rank++) { /* 0 is alone; 1 and 2 go on */
            dlp_pipe_desc d = {.seed = 3, .streams = 4, .steps_per_epoch = STEPS};
            dlp_pipe *p = NULL;
            if (s3) d.shm = &shm_;
            if (rank > 0) {
                d.resume = &state;
                d.rank = rank - 1;
                d.world_size = 2;
            }
            if (!halves_open(h, s3, &d, &p)) break;
            halves_take(p, rank > 0 ? MOST : FIRST, random, s3 ? &kills : NULL, &got[s3][rank]);
            if (rank == 0) CHECK(dlp_pipe_state(p, NULL, &state) == DLP_OK);
            CHECK(dlp_pipe_close(p) == DLP_OK);
            CHECK(got[s3][rank].rc == (rank > 0 ? DLP_END : DLP_OK));
        }
        CHECK(got[s3][0].n == FIRST && got[s3][1].n == STEPS - FIRST &&
              got[s3][2].n == STEPS - FIRST);
    }
    for (int rank = 0; rank < 3; rank++)
        CHECK(outcome_same(&got[1][rank], &got[0][rank], "two manifests, rank", rank));
    CHECK(memcmp(got[1][1].of, got[1][2].of, sizeof got[1][1].of) != 0 && kills > 0);
    shm_.max_kills = 0;
    world_tell(server, WORLD_EASY);
    dlp_s3_stats_get(client, &s);
    printf("  two manifests: %d kills, %d requests for %d objects\n", kills,
           (int)(s.requests - before.requests), (int)(s.objects - before.objects));
    CHECK(s.requests > s.objects - before.objects + before.requests);
    for (int i = 0; i < 2; i++) {
        CHECK(dlp_source_close(h[i].source) == DLP_OK);
        dlp_s3_manifest_close(h[i].manifest);
    }
    dlp_s3_manifest_close(w.manifest);
}

static void parts__processes__as_from_memory(void) {
    static const uint64_t items[PARTS] = {1, 2, 3, 4, 5, 6};
    dlp_s3_manifest *m = parts_manifest();
    dlp_s3_source_desc sd = {.s3 = client, .bucket = "photos", .manifest = m};
    dlp_source *source = NULL;
    outcome want, got;
    dlp_loader_desc d = parts_desc(items);
    d.parts.manifest_id = dlp_s3_manifest_id(m);
    parts_run(&d, &want);
    CHECK(dlp_s3_source_open(&source, &sd, NULL) == DLP_OK);
    d = parts_desc(NULL);
    d.parts.source = source;
    d.parts.load = NULL;
    d.parts.workers.placement = DLP_PLACE_PROCESSES;
    in_processes(&d);
    parts_run(&d, &got);
    CHECK(outcome_same(&got, &want, "parts", 0));
    CHECK(dlp_source_close(source) == DLP_OK);
    dlp_s3_manifest_close(m);
}

static void chunks__processes__as_from_memory(void) {
    dlp_s3_manifest *m[2] = {chunks_manifest(0), chunks_manifest(1)};
    dlp_source *source[2] = {chunks_source(client, m[0], 0), chunks_source(client, m[1], 1)};
    dlp_chunks_desc d = chunks_desc(1, 0);
    outcome want, got;
    chunks_run(&d, &want);
    d.source = source[0];
    d.load = chunks_both;
    d.user = source;
    d.workers.placement = DLP_PLACE_PROCESSES;
    d.pipe.shm = &shm_;
    chunks_run(&d, &got);
    CHECK(outcome_same(&got, &want, "chunks", 0));
    for (int i = 0; i < 2; i++) {
        CHECK(dlp_source_close(source[i]) == DLP_OK);
        dlp_s3_manifest_close(m[i]);
    }
}

/* Nobody even accepts connections: close does not wait for that. */
static void stop__server_is_gone__within_a_second(void) {
    world w;
    dlp_source *source;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    char url[64];
    dlp_s3 *s3;
    CHECK(bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 100) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &n) == 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port)); /* nobody accepts */
    s3 = world_client(url, 0);
    world_open(&w, 0);
    source = world_source(&w, s3);
    for (int kind = 0; kind < 3; kind++) {
        dlp_loader_desc d = world_loader();
        dlp_pipe *p = NULL;
        dlp_batch *b;
        uint64_t began;
        world_kind(&d, kind);
        source_own(&d, source);
        in_processes(&d);
        CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p, &b, 50) == DLP_TIMEOUT);
        began = test_now_ns();
        CHECK(dlp_pipe_close(p) == DLP_OK);
        CHECK_SOON(test_now_ns() - began < 1000000000u);
    }
    CHECK(dlp_source_close(source) == DLP_OK);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    dlp_s3_manifest_close(w.manifest);
    close(listener);
}

int main(int argc, char **argv) {
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    char url[64] = "";
    int end;
    SHM_NEEDS("shm_s3");
    world_server(url, sizeof url, &end);
    client = world_client(url, 0);
    items__processes__as_from_memory();
    kills__at_random__same_bytes(&random);
    kills__throttled_and_an_outage__same_bytes(&random, end);
    two_manifests__mixed_and_packed__as_from_memory(&random, end);
    parts__processes__as_from_memory();
    chunks__processes__as_from_memory();
    test_tries(stop__server_is_gone__within_a_second);
    CHECK(dlp_s3_close(client) == DLP_OK);
    close(end);
    return test_end("shm_s3");
}
