/* needs: parts split */
/* S3 as a source in worker processes: the same bytes as from memory in every topology, also when
   workers are killed with requests under way; parts and chunks; a stop while a server hangs.
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

/* Kill a worker, sometimes. Returns whether it was. */
static int killed(dlp_pipe *p, uint64_t *random, int before) {
    dlp_worker_stats s;
    uint32_t worker;
    if (test_pick(random, 6) != 0) return 0;
    test_pause(test_pick(random, 1000) * 1000u);
    worker = test_pick(random, 2);
    CHECK(dlp_pipe_worker_stats(p, worker, &s) == 0);
    for (int i = 0; i < 20000 && before == 0 && s.state == DLP_WORKER_STARTING; i++) {
        test_pause(1000000);
        CHECK(dlp_pipe_worker_stats(p, worker, &s) == 0);
    }
    return s.pid > 0 && s.state != DLP_WORKER_STARTING && kill(s.pid, SIGKILL) == 0;
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
            kills += killed(p, random, kills);
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
    parts__processes__as_from_memory();
    chunks__processes__as_from_memory();
    test_tries(stop__server_is_gone__within_a_second);
    CHECK(dlp_s3_close(client) == DLP_OK);
    close(end);
    return test_end("shm_s3");
}
