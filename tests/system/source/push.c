/* needs: parts */
/* Items that are pushed: by threads and processes, one and several, with and without a worker;
   producers killed with an item begun, and their successors; full lanes by each rule; ends, stops
   and closes while somebody waits; and what is refused, files that are cut or changed among it. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/push_rig.h"
#include "../../rig/inside_push.h"

/* ---- threads ---- */

typedef struct job {
    dlp_push *push;
    uint64_t items;
    uint32_t number;
    int rc;
} job;

static void *thread_main(void *arg) {
    job *j = arg;
    dlp_pusher *u = producer(j->push, j->number);
    j->rc = push_all(u, 0, j->items, 1);
    CHECK(push_one(u, 0, DLP_NOWAIT) == DLP_ERR_STATE); /* behind the end */
    dlp_pusher_close(u);
    return NULL;
}

static void threads__several__each_in_its_order(void) {
    static const int producers[] = {1, 1, 4, 16};
    for (int k = 0; k < 4; k++)
        for (int workers = 0; workers < 2; workers++) {
            uint64_t next[17] = {0}, total = 0, items = 3000u + 7u * (unsigned)k;
            job jobs[16];
            pthread_t t[16];
            dlp_push_stats s;
            rig r = begin(
                (dlp_push_desc){.capacity = k == 1 ? 1 : 16, .writers = (uint32_t)producers[k]},
                workers, 32);
            for (int i = 0; i < producers[k]; i++) {
                jobs[i] = (job){r.push, items, (uint32_t)i + 1, 0};
                CHECK(pthread_create(&t[i], NULL, thread_main, &jobs[i]) == 0);
            }
            CHECK(take_all(r.pipe, next, 32) == DLP_END);
            for (int i = 0; i < producers[k]; i++) {
                CHECK(pthread_join(t[i], NULL) == 0 && jobs[i].rc == DLP_OK);
                CHECK(next[i + 1] == items);
                total += next[i + 1];
            }
            CHECK(dlp_push_look(r.push, 0, &s) == DLP_OK && s.items == total && s.left == 0);
            CHECK(s.refused == 0 && s.waiting == 0 && s.attached == 0);
            CHECK(s.ended == (uint32_t)producers[k]);
            CHECK(dlp_push_look(r.push, 1, &s) == DLP_OK && s.items == items);
            CHECK(dlp_push_look(r.push, 17, &s) == DLP_ERR_ARG);
            CHECK(dlp_push_close(r.push) == DLP_ERR_BUSY); /* the pipe has it */
            end(&r);
        }
}

/* One after the other in the same lane: each has an end of its own. */
static void threads__one_lane__each_ends(void) {
    uint64_t next[17] = {0};
    rig r = begin((dlp_push_desc){.max_producers = 1, .writers = 3}, 0, 8);
    for (uint64_t i = 0; i < 3; i++) {
        dlp_pusher *u = producer(r.push, 0);
        CHECK(push_all(u, 5 * i, 5 * (i + 1), 1) == DLP_OK);
        dlp_pusher_close(u);
    }
    CHECK(take_all(r.pipe, next, 8) == DLP_END && next[1] == 15);
    end(&r);
}

/* ---- rows that are read several at once ---- */

/* Somebody's own callback, around that of the push: it sees each item. */
static struct {
    dlp_item_fn fetch;
    void *user;
    uint64_t calls;
} around;
static int fetch_around(void *user, dlp_item *it) {
    (void)user;
    around.calls++;
    return around.fetch(around.user, it);
}

/* known: the push takes it for its own, so rows come several at once, and it sees hardly any. */
static void callback_around__sees_each_item_unless_known(void) {
    for (int i = 0; i < 4; i++) {
        const int known = i / 2, workers = i % 2;
        uint64_t next[17] = {0};
        dlp_loader_desc d = {.batch_size = 16, .num_workers = workers};
        rig r = {NULL, NULL};
        dlp_pusher *u;
        CHECK(dlp_push_open(
                  &r.push,
                  &(dlp_push_desc){.fields = FIELDS, .n_fields = 2, .capacity = 1024, .writers = 1},
                  NULL) == DLP_OK);
        u = producer(r.push, 0);
        CHECK(push_all(u, 0, 500, 1) == DLP_OK);
        source_items(dlp_push_source(r.push), &d.dataset, &d.workers);
        around.fetch = d.dataset.fetch;
        around.user = d.dataset.user;
        around.calls = 0;
        d.dataset.fetch = fetch_around;
        if (known) d.dataset.reader = inside_reader(d.dataset.reader, fetch_around);
        CHECK(dlp_loader_open(&r.pipe, &d, NULL) == DLP_OK);
        CHECK(take_all(r.pipe, next, 16) == DLP_END && next[1] == 500);
        CHECK(known && !inside_debug() ? around.calls < 100
                                       : around.calls > 500); /* the end, too */
        dlp_pusher_close(u);
        end(&r);
    }
}

/* Fields of 1, 8, 12 and 28 bytes, each whole in its row. */
static void fields_of_all_sizes__each_whole(void) {
    static const dlp_field fields[4] = {{"a", DLP_U8, 0, {0}, 0, 0},
                                        {"b", DLP_F64, 0, {0}, 0, 0},
                                        {"c", DLP_U32, 1, {3}, 0, 0},
                                        {"d", DLP_F32, 1, {7}, 0, 0}};
    for (int workers = 0; workers < 2; workers++) {
        push_loader desc = {
            .push = {.fields = fields, .n_fields = 4, .capacity = 512, .writers = 1},
            .loader = {.batch_size = 40, .num_workers = workers}};
        rig r = {NULL, NULL};
        dlp_pusher *u;
        dlp_batch *batch = NULL;
        uint64_t n = 0;
        CHECK(push_loader_open(&r.pipe, &r.push, &desc, NULL) == DLP_OK);
        u = producer(r.push, 0);
        for (uint32_t i = 0; i < 400; i++) {
            uint8_t a = (uint8_t)i;
            double b = i;
            uint32_t c[3] = {i, i + 1, i + 2};
            float d[7];
            const void *data[4] = {&a, &b, c, d};
            for (int k = 0; k < 7; k++) d[k] = (float)i + (float)k / 8;
            CHECK(dlp_pusher_push(u, data, SOON_MS) == DLP_OK);
        }
        CHECK(dlp_pusher_end(u, SOON_MS) == DLP_OK);
        while (dlp_pipe_next_timeout(r.pipe, &batch, SOON_MS) == DLP_OK) {
            for (uint32_t i = 0; i < batch->count; i++, n++) {
                const uint32_t *c = (const uint32_t *)batch->fields[2].data + (size_t)3 * i;
                const float *d = (const float *)batch->fields[3].data + (size_t)7 * i;
                CHECK(((const uint8_t *)batch->fields[0].data)[i] == (uint8_t)n);
                CHECK(((const double *)batch->fields[1].data)[i] <= (double)n);
                CHECK(((const double *)batch->fields[1].data)[i] >= (double)n);
                for (uint32_t k = 0; k < 3; k++) CHECK(c[k] == n + k);
                for (int k = 0; k < 7; k++) CHECK((int)(d[k] * 8) == (int)n * 8 + k);
            }
            dlp_pipe_release(r.pipe, batch);
        }
        CHECK(n == 400);
        dlp_pusher_close(u);
        end(&r);
    }
}

static int fetch_index(void *user, dlp_item *it) {
    (void)user;
    *(uint64_t *)it->data[0] = it->index;
    return it->index < 30 ? 0 : DLP_END;
}

/* A dataset that had a push once, and has items of its own now, a number of them or a stream: the
   push is gone. */
static void dataset_of_before__own_items__push_not_asked(int is_stream) {
    dlp_loader_desc d = {.batch_size = 4};
    dlp_workers_desc unused = {0};
    dlp_push *s = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    uint64_t due = 0;
    CHECK(dlp_push_open(&s, &(dlp_push_desc){.fields = FIELDS, .n_fields = 2, .writers = 1},
                        NULL) == DLP_OK);
    source_items(dlp_push_source(s), &d.dataset, &unused);
    CHECK(dlp_push_close(s) == DLP_OK);
    d.dataset.fields = FIELDS;
    d.dataset.n_fields = 1;
    d.dataset.fetch = fetch_index;
    d.dataset.n_items = is_stream ? 0 : 30;
    d.dataset.open_end = is_stream;
    d.drop_last = DLP_LAST_PARTIAL;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK);
    if (!is_stream) CHECK(!inside_reads_on(p));
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t i = 0; i < b->count; i++)
            CHECK(((const uint64_t *)b->fields[0].data)[i] == due++);
        dlp_pipe_release(p, b);
    }
    CHECK(due == 30 && dlp_pipe_close(p) == DLP_OK);
}

/* Two pipes cannot read one push; one after the other can. Ranks cannot either. */
static void second_pipe__while_one_reads__refused(void) {
    push_loader two = {.push = {.fields = FIELDS, .n_fields = 2, .writers = 1},
                       .loader = {.batch_size = 2, .pipe.world_size = 2}};
    dlp_loader_desc d = {.batch_size = 1, .drop_last = DLP_LAST_PARTIAL};
    dlp_push *s = NULL;
    dlp_pusher *u;
    dlp_pipe *p[3] = {NULL};
    dlp_batch *b = NULL;
    dlp_error err = {0};
    CHECK(push_loader_open(&p[0], &s, &two, &err) == DLP_ERR_ARG && p[0] == NULL);
    CHECK(strcmp(err.field, "world_size") == 0);
    CHECK(dlp_push_open(&s, &(dlp_push_desc){.fields = FIELDS, .n_fields = 2, .writers = 1},
                        NULL) == DLP_OK);
    u = producer(s, 1);
    source_items(dlp_push_source(s), &d.dataset, &d.workers);
    for (int i = 0; i < 3; i++) {
        if (i == 2) CHECK(dlp_pipe_close(p[1]) == DLP_OK && dlp_pipe_close(p[0]) == DLP_OK);
        CHECK(dlp_loader_open(&p[i], &d, NULL) == DLP_OK);
        CHECK(push_one(u, (uint64_t)i, 0) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(p[i], &b, SOON_MS) == (i == 1 ? DLP_ERR_CALLBACK : DLP_OK));
        if (i == 1) CHECK(strstr(dlp_pipe_error(p[1])->message, "another pipe") != NULL);
        if (i != 1) dlp_pipe_release(p[i], b);
    }
    dlp_pusher_close(u);
    CHECK(dlp_pipe_close(p[2]) == DLP_OK && dlp_push_close(s) == DLP_OK);
}

/* A batch is begun, and waits for the rest of its items: they come, or the stream is stopped. */
static void batch_begun__rest_comes_or_stop__whole_or_short(void) {
    for (int workers = 0; workers < 2; workers++) {
        uint64_t next[17] = {0};
        rig r = begin((dlp_push_desc){.capacity = 64, .writers = 2}, workers, 8);
        dlp_pusher *u = producer(r.push, 1), *v = producer(r.push, 2);
        dlp_batch *b = NULL;
        for (uint64_t n = 0; n < 40; n += 8) {
            CHECK(push_all(u, n, n + 3, 0) == DLP_OK && push_all(v, n, n + 2, 0) == DLP_OK);
            if (workers) CHECK(dlp_pipe_next_timeout(r.pipe, &b, 5) == DLP_TIMEOUT);
            CHECK(push_all(u, n + 3, n + 5, 0) == DLP_OK && push_all(v, n + 2, n + 3, 0) == DLP_OK);
            CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK && b->count == 8);
            CHECK(b->index[0] == 2 * n && b->index[7] == 2 * n + 7);
            dlp_pipe_release(r.pipe, b);
            CHECK(push_all(u, n + 5, n + 8, 0) == DLP_OK && push_all(v, n + 3, n + 8, 0) == DLP_OK);
            CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK && b->count == 8);
            dlp_pipe_release(r.pipe, b);
        }
        CHECK(push_all(u, 40, 43, 1) == DLP_OK); /* an end that is not the last */
        if (workers) CHECK(dlp_pipe_next_timeout(r.pipe, &b, 5) == DLP_TIMEOUT);
        dlp_push_stop(r.push);
        next[1] = 40;
        CHECK(take_all(r.pipe, next, 8) == DLP_END && next[1] == 43);
        dlp_pusher_close(u);
        dlp_pusher_close(v);
        end(&r);
    }
}

/* Who waits awake yields where producers, workers and consumer have not a core each. */
static void awake__threads_above_cores__only_yields(void) {
    for (int workers = 0; workers < 2; workers++) {
        uint32_t cpus = (uint32_t)inside_cpu_count();
        for (uint32_t writers = 1; writers <= cpus + 1; writers++) {
            rig r = begin((dlp_push_desc){.writers = writers}, workers, 8);
            CHECK(inside_only_yields(r.pipe) == (writers + (uint32_t)workers + 1 > cpus));
            end(&r);
        }
    }
}

/* Explain does not advise a second worker, which open would refuse. */
static void explain__reader_is_the_limit__no_second_worker_advised(void) {
    for (int workers = 0; workers < 2; workers++) {
        rig r = begin((dlp_push_desc){.capacity = 1024}, workers, 4);
        static dlp_stats s;
        dlp_pusher *u = producer(r.push, 1);
        dlp_batch *b = NULL;
        char text[4000];
        CHECK(push_all(u, 0, 40, 0) == DLP_OK);
        for (int i = 0; i < 10; i++) {
            CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK);
            dlp_pipe_release(r.pipe, b);
        }
        CHECK(dlp_pipe_stats(r.pipe, &s) == DLP_OK);
        s.step_ns = 1000; /* as if fetch took all the time there is */
        s.wait_ns = 1000000000;
        s.cpus = 64;
        for (uint32_t i = 0; i < s.n_stages; i++)
            if (s.stages[i].kind == DLP_STAGE_FETCH) s.stages[i].busy_ns = 1000000000;
        CHECK(dlp_stats_explain(&s, text, sizeof text) > 0);
        if (workers == 0) CHECK(strstr(text, "a worker would give nothing") != NULL);
        if (workers == 1) CHECK(strstr(text, "push fewer and larger items") != NULL);
        dlp_pusher_close(u);
        dlp_push_stop(r.push);
        end(&r);
    }
}

/* ---- processes ---- */

static void processes__killed__item_unseen_successor_goes_on(void) {
    for (int by_path = 0; by_path < 2; by_path++) {
        const char *path = by_path ? in_rig("lanes") : NULL;
        uint64_t next[17] = {0};
        int status;
        pid_t pid[3];
        rig r = begin((dlp_push_desc){.capacity = 64, .writers = 3, .path = path}, 1, 50);
        for (uint32_t i = 0; i < 3; i++)
            pid[i] =
                child(by_path ? NULL : r.push, path, i + 1, 0, i == 1 ? 20 : 1000, i != 1, i == 1);
        CHECK(waitpid(pid[1], &status, 0) == pid[1] && WIFSIGNALED(status));
        pid[1] = child(by_path ? NULL : r.push, path, 2, 20, 1000, 1, 0);
        CHECK(take_all(r.pipe, next, 50) == DLP_END);
        for (int i = 0; i < 3; i++) CHECK(ended_well(pid[i]) && next[i + 1] == 1000);
        CHECK(!by_path || access(path, F_OK) == 0);
        end(&r);
        CHECK(!by_path || access(path, F_OK) != 0);
    }
}

/* A producer is killed when it has just said the end: a successor does not say it once more, which
   would end the stream while another goes on. */
static void processes__killed_after_the_end__said_once(void) {
    uint64_t next[17] = {0};
    dlp_pusher *u = NULL, *other;
    dlp_error err = {0};
    int status;
    rig r = begin((dlp_push_desc){.capacity = 64, .writers = 2}, 1, 8);
    pid_t pid = child(r.push, NULL, 1, 0, 10, 1, 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    other = producer(r.push, 2);
    CHECK(push_all(other, 0, 5, 0) == DLP_OK);
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.push = r.push, .number = 1}, &err) ==
              DLP_ERR_STATE &&
          u == NULL && strcmp(err.field, "number") == 0);
    CHECK(push_all(other, 5, 40, 1) == DLP_OK);
    CHECK(take_all(r.pipe, next, 8) == DLP_END && next[1] == 10 && next[2] == 40);
    dlp_pusher_close(other);
    end(&r);
}

/* More producers than were announced: behind the end nobody reads, and they are told. */
static void waiting__stream_has_ended__producers_are_told(void) {
    uint64_t next[17] = {0};
    rig r = begin((dlp_push_desc){.capacity = 2}, 1, 8);
    dlp_pusher *u = producer(r.push, 1), *late = producer(r.push, 2), *later = NULL;
    CHECK(push_all(u, 0, 10, 1) == DLP_OK);
    CHECK(take_all(r.pipe, next, 8) == DLP_END && next[1] == 10);
    CHECK(push_one(late, 0, SOON_MS) == DLP_STOPPED);
    CHECK(dlp_pusher_open(&later, &(dlp_pusher_desc){.push = r.push}, NULL) == DLP_STOPPED);
    dlp_pusher_close(u);
    dlp_pusher_close(late);
    end(&r);
}

typedef struct waiter {
    dlp_pusher *u;
    uint64_t pushed;
    int rc;
} waiter;

static void *push_until_told(void *arg) {
    waiter *w = arg;
    while ((w->rc = push_one(w->u, w->pushed, 5000)) == DLP_OK) w->pushed++;
    return NULL;
}

/* The pipe is closed while a producer waits for room: it is told. What it had pushed is another
   pipe's, which it may push to as well. */
static void waiting__pipe_is_closed__producer_is_told(void) {
    for (int workers = 0; workers < 2; workers++) {
        uint64_t next[17] = {0};
        rig r = begin((dlp_push_desc){.capacity = 4}, workers, 1);
        waiter w = {.u = producer(r.push, 1)};
        dlp_loader_desc again = {.batch_size = 1, .num_workers = workers};
        dlp_batch *b = NULL;
        pthread_t t;
        CHECK(pthread_create(&t, NULL, push_until_told, &w) == 0);
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK);
        dlp_pipe_release(r.pipe, b);
        CHECK(dlp_pipe_close(r.pipe) == DLP_OK);
        CHECK(pthread_join(t, NULL) == 0 && w.rc == DLP_STOPPED && w.pushed >= 4);
        source_items(dlp_push_source(r.push), &again.dataset, &again.workers);
        CHECK(dlp_loader_open(&r.pipe, &again, NULL) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK);
        next[1] = (uint32_t) * (const uint64_t *)b->fields[0].data + 1;
        dlp_pipe_release(r.pipe, b);
        CHECK(push_one(w.u, w.pushed++, SOON_MS) == DLP_OK);
        dlp_push_stop(r.push);
        CHECK(take_all(r.pipe, next, 1) == DLP_END && next[1] >= w.pushed);
        dlp_pusher_close(w.u);
        end(&r);
    }
}

/* The reader's process is killed: producers that wait are told. */
static void reader__killed__producers_are_told(void) {
    const char *path = in_rig("orphan");
    dlp_pusher *u = NULL;
    dlp_error err = {0};
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        dlp_push *s = NULL;
        dlp_push_desc d = {
            .fields = FIELDS, .n_fields = 2, .capacity = 2, .writers = 1, .path = path};
        if (dlp_push_open(&s, &d, NULL) != DLP_OK) _exit(1);
        for (;;) pause();
    }
    for (int i = 0; i < 1000 && u == NULL; i++) {
        dlp_pusher_desc d = {.path = path, .fields = FIELDS, .n_fields = 2};
        if (dlp_pusher_open(&u, &d, NULL) != DLP_OK) usleep(10000);
    }
    CHECK(u != NULL);
    CHECK(push_one(u, 0, 0) == DLP_OK && push_one(u, 1, 0) == DLP_OK);
    CHECK(push_one(u, 2, DLP_NOWAIT) == DLP_FULL && push_one(u, 2, 150) == DLP_TIMEOUT);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    CHECK(push_one(u, 2, DLP_FOREVER) == DLP_STOPPED);
    dlp_pusher_close(u);
    CHECK(dlp_pusher_open(&u, &(dlp_pusher_desc){.path = path, .fields = FIELDS, .n_fields = 2},
                          &err) == DLP_ERR_SYSTEM);
    CHECK(err.errnum == ECONNREFUSED && strstr(err.message, "is gone") != NULL);
    CHECK(unlink(path) == 0);
}

/* ---- full lanes ---- */

static void full__refuse__counted(void) {
    rig r = begin((dlp_push_desc){.capacity = 4, .full = DLP_PUSH_REFUSE}, 0, 4);
    dlp_pusher *u = producer(r.push, 0);
    uint64_t next[17] = {0};
    dlp_push_stats s;
    for (uint64_t i = 0; i < 4; i++) CHECK(push_one(u, i, DLP_FOREVER) == DLP_OK);
    for (uint64_t i = 0; i < 3; i++) CHECK(push_one(u, 4, DLP_FOREVER) == DLP_FULL);
    CHECK(dlp_push_look(r.push, 0, &s) == DLP_OK && s.refused == 3 && s.waiting == 4);
    CHECK(s.attached == 1);
    dlp_push_stop(r.push); /* what was pushed comes */
    CHECK(push_one(u, 4, DLP_FOREVER) == DLP_STOPPED);
    CHECK(take_all(r.pipe, next, 4) == DLP_END && next[1] == 4);
    dlp_pusher_close(u);
    end(&r);
}

static void full__newest__last_ones_stay(void) {
    for (uint64_t keep = 0; keep <= 8; keep += keep == 3 ? 5 : keep == 0 ? 1 : 2) {
        uint64_t most = keep ? keep : 1;
        rig r = begin((dlp_push_desc){.capacity = 8, .full = DLP_PUSH_NEWEST, .keep = keep}, 0, 1);
        dlp_pusher *u = producer(r.push, 0);
        dlp_batch *b = NULL;
        dlp_push_stats s;
        for (uint64_t i = 0; i < 8; i++) CHECK(push_one(u, i, DLP_NOWAIT) == DLP_OK);
        for (uint64_t i = 0; i < most; i++) {
            CHECK(dlp_pipe_next(r.pipe, &b) == DLP_OK);
            CHECK((uint32_t) * (const uint64_t *)b->fields[0].data == 8 - most + i);
            dlp_pipe_release(r.pipe, b);
        }
        CHECK(dlp_push_look(r.push, 1, &s) == DLP_OK && s.left == 8 - most && s.items == most);
        for (uint64_t i = 8; i < 12; i++) CHECK(push_one(u, i, DLP_NOWAIT) == DLP_OK);
        for (uint64_t i = 8; i < 12; i++) { /* not full: none is left */
            CHECK(dlp_pipe_next(r.pipe, &b) == DLP_OK);
            CHECK((uint32_t) * (const uint64_t *)b->fields[0].data == i);
            dlp_pipe_release(r.pipe, b);
        }
        CHECK(dlp_pusher_end(u, DLP_NOWAIT) == DLP_OK && dlp_pipe_next(r.pipe, &b) == DLP_END);
        dlp_pusher_close(u);
        end(&r);
    }
}

/* The end of a stream is no item: it takes no place of those that are kept. */
static void full__newest_and_its_end__last_ones_stay(void) {
    for (uint64_t keep = 1; keep <= 8; keep++) {
        uint64_t kept = keep < 7 ? keep : 7;
        rig r = begin((dlp_push_desc){.capacity = 8, .full = DLP_PUSH_NEWEST, .keep = keep}, 0, 1);
        dlp_pusher *u = producer(r.push, 0);
        dlp_batch *b = NULL;
        dlp_push_stats s;
        for (uint64_t i = 0; i < 7; i++) CHECK(push_one(u, i, DLP_NOWAIT) == DLP_OK);
        CHECK(dlp_pusher_end(u, DLP_NOWAIT) == DLP_OK);
        for (uint64_t i = 0; i < kept; i++) {
            CHECK(dlp_pipe_next(r.pipe, &b) == DLP_OK);
            CHECK((uint32_t) * (const uint64_t *)b->fields[0].data == 7 - kept + i);
            dlp_pipe_release(r.pipe, b);
        }
        CHECK(dlp_pipe_next(r.pipe, &b) == DLP_END);
        CHECK(dlp_push_look(r.push, 1, &s) == DLP_OK && s.left == 7 - kept && s.items == kept);
        dlp_pusher_close(u);
        end(&r);
    }
}

/* ---- somebody waits ---- */

static void *close_soon(void *arg) {
    usleep(50000);
    dlp_push_stop(arg);
    return NULL;
}

static void waiting__stop_and_close__end_it(void) {
    for (int how = 0; how < 3; how++) { /* stop from a thread; close; stop of the pipe */
        rig r = begin((dlp_push_desc){0}, 1, 8);
        dlp_batch *b = NULL;
        pthread_t t;
        uint64_t from = test_now_ns();
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, 30) == DLP_TIMEOUT);
        if (how == 0) {
            CHECK(pthread_create(&t, NULL, close_soon, r.push) == 0);
            CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_END);
            CHECK(pthread_join(t, NULL) == 0);
        } else if (how == 2) {
            dlp_pipe_stop(r.pipe);
            CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_STOPPED);
        }
        end(&r);
        CHECK(test_now_ns() - from < UINT64_C(10000000000));
    }
}

/* A lane has 64 KiB of records, but 256 to 4096 of them, if the desc gives no number. */
static void capacity__not_given__64_KiB(void) {
    static const struct {
        int64_t bytes; /* of an item; a record has a mark of 8 bytes more */
        uint64_t items;
    } lanes[] = {{8, 4096}, {9, 2048}, {120, 512}, {248, 256}, {4096, 256}};
    for (int k = 0; k < 5; k++) {
        static const uint8_t item[4096];
        const dlp_field f = {.name = "x", .dtype = DLP_U8, .ndim = 1, .shape = {lanes[k].bytes}};
        const dlp_push_desc d = {
            .fields = &f, .n_fields = 1, .writers = 1, .max_producers = 1, .full = DLP_PUSH_REFUSE};
        const void *data[1] = {item};
        dlp_push *push = NULL;
        dlp_push_stats s;
        uint64_t n = 0;
        CHECK(dlp_push_open(&push, &d, NULL) == DLP_OK);
        dlp_pusher *u = producer(push, 0);
        while (n <= 4096 && dlp_pusher_push(u, data, DLP_NOWAIT) == DLP_OK) n++;
        CHECK(dlp_push_look(push, 0, &s) == DLP_OK);
        CHECK(n == lanes[k].items && s.waiting == n && s.refused == 1);
        dlp_pusher_close(u);
        CHECK(dlp_push_close(push) == DLP_OK);
    }
}

/* ---- what is refused ---- */

static void refused_desc(dlp_push_desc d, const char *field, const char *word) {
    dlp_push *s = NULL;
    dlp_error err = {0};
    if (d.fields == NULL && d.n_fields == 0) d.fields = FIELDS, d.n_fields = 2;
    if (strcmp(field, "writers") != 0) d.writers = 1;
    CHECK(dlp_push_open(&s, &d, &err) == DLP_ERR_ARG && s == NULL);
    if (strcmp(err.field, field) != 0) printf("%s, not %s: %s\n", err.field, field, err.message);
    CHECK(strcmp(err.field, field) == 0 && strstr(err.message, word) != NULL);
}

static void descs__wrong__named(void) {
    const dlp_field ragged = {.name = "a", .dtype = DLP_U8, .ragged = 1};
    const dlp_field large = {.name = "a", .dtype = DLP_U8, .ndim = 2, .shape = {1024, 1024}};
    const dlp_field none = {.name = "a", .dtype = DLP_U8, .ndim = 1};
    push_loader d = {.push = {.fields = FIELDS, .n_fields = 2, .writers = 1},
                     .loader = {.batch_size = 4, .num_workers = 2}};
    dlp_pipe *p = NULL;
    dlp_push *s = NULL;
    dlp_error err = {0};
    refused_desc((dlp_push_desc){0}, "writers", "1 or more");
    refused_desc((dlp_push_desc){.capacity = 3}, "capacity", "power of two");
    refused_desc((dlp_push_desc){.max_producers = 5000}, "max_producers", "4096");
    refused_desc((dlp_push_desc){.full = 3}, "full", "NEWEST");
    refused_desc((dlp_push_desc){.keep = 2}, "keep", "NEWEST");
    refused_desc((dlp_push_desc){.keep = 257, .full = DLP_PUSH_NEWEST}, "keep", "capacity");
    refused_desc((dlp_push_desc){.fields = &ragged, .n_fields = 1}, "fields", "ragged");
    refused_desc((dlp_push_desc){.fields = &large, .n_fields = 1}, "fields", "bytes");
    refused_desc((dlp_push_desc){.fields = &none, .n_fields = 1}, "fields", "shape");
    refused_desc((dlp_push_desc){.fields = NULL, .n_fields = 1}, "fields", "given");
    d.loader.num_workers = 1;
    d.loader.epochs = 2;
    CHECK(push_loader_open(&p, &s, &d, &err) == DLP_ERR_ARG && strcmp(err.field, "epochs") == 0);
    CHECK(p == NULL && s == NULL);
    CHECK(dlp_push_close(NULL) == DLP_OK);
    dlp_pusher_close(NULL);
}

/* What is read on has one worker, of this process, and one epoch: open says so, by hand too. */
static void by_hand__not_one_reader__refused(void) {
    static const char *const field[] = {"num_workers", "num_workers", "placement", "fetcher",
                                        "epochs"};
    for (int how = 0; how < 5; how++) {
        dlp_push *s = NULL;
        dlp_pipe *p = NULL;
        dlp_error err = {0};
        dlp_loader_desc d = {.batch_size = 4, .num_workers = how == 0 ? 2 : 1};
        CHECK(dlp_push_open(&s, &(dlp_push_desc){.fields = FIELDS, .n_fields = 2, .writers = 1},
                            NULL) == DLP_OK);
        source_items(dlp_push_source(s), &d.dataset, &d.workers);
        if (how == 1) d.workers.workers_max = 3;
        if (how == 2) d.workers.placement = DLP_PLACE_PROCESSES;
        if (how == 3) d.fetcher = DLP_FETCH_THREADS;
        if (how == 4) d.epochs = 2;
        CHECK(dlp_loader_open(&p, &d, &err) < 0 && p == NULL);
        if (strstr(err.field, field[how]) == NULL)
            printf("%d %s: %s\n", how, err.field, err.message);
        CHECK(strstr(err.field, field[how]) != NULL);
        CHECK(dlp_push_close(s) == DLP_OK);
    }
}

static int open_path(const char *path, const dlp_field *fields, uint32_t n, dlp_error *err) {
    dlp_pusher_desc d = {.path = path, .fields = fields, .n_fields = n};
    dlp_pusher *u = NULL;
    int rc = dlp_pusher_open(&u, &d, err);
    CHECK((rc == DLP_OK) == (u != NULL));
    dlp_pusher_close(u);
    return rc;
}

/* The memory of a push, so many bytes of it, handed out by another program at the path. */
static int open_made_up(const char *path, const uint8_t *bytes, size_t n, dlp_error *err) {
    void *map = NULL, *door;
    int rc, memory;
    CHECK(inside_push_map(n, &memory, &map) == DLP_OK);
    memcpy(map, bytes, n);
    CHECK((door = inside_door_open(path, memory, NULL)) != NULL);
    rc = open_path(path, FIELDS, 2, err);
    inside_door_close(door, path);
    CHECK(munmap(map, n) == 0 && close(memory) == 0);
    return rc;
}

/* Other fields; no such path; no push at the path. */
static void path__no_push_or_another__refused(void) {
    char path[96]; /* its own: names of the rig are used again */
    dlp_field wrong[2] = {FIELDS[0], FIELDS[1]};
    dlp_push_desc d = {.fields = FIELDS, .n_fields = 2, .path = path, .writers = 1};
    dlp_push *s = NULL, *again = NULL;
    dlp_error err = {0};
    char longer[200];
    snprintf(path, sizeof path, "%s", in_rig("lanes"));
    CHECK(dlp_push_open(&s, &d, &err) == DLP_OK);
    CHECK(dlp_push_open(&again, &d, &err) == DLP_ERR_SYSTEM && err.errnum == EADDRINUSE);
    CHECK(strstr(err.message, "runs has a push there") != NULL && again == NULL);
    CHECK(open_path(path, FIELDS, 2, &err) == DLP_OK);
    wrong[1].shape[0] = PIXELS + 1; /* as many bytes */
    CHECK(open_path(path, wrong, 2, &err) == DLP_ERR_ARG && strstr(err.message, "fields"));
    CHECK(open_path(path, FIELDS, 1, &err) == DLP_ERR_ARG);
    CHECK(open_path(in_rig("none"), FIELDS, 2, &err) == DLP_ERR_SYSTEM && err.errnum == ENOENT);
    CHECK(open_path(rig_dir, FIELDS, 2, &err) == DLP_ERR_CORRUPT);
    d.path = rig_write("other", "text", 4);
    CHECK(open_path(d.path, FIELDS, 2, &err) == DLP_ERR_CORRUPT);
    CHECK(dlp_push_open(&again, &d, &err) == DLP_ERR_SYSTEM && err.errnum == EEXIST);
    CHECK(strstr(err.message, "no push") != NULL && access(d.path, F_OK) == 0);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    d.path = longer;
    CHECK(dlp_push_open(&again, &d, &err) == DLP_ERR_ARG && strcmp(err.field, "path") == 0);
    CHECK(open_path(longer, FIELDS, 2, &err) == DLP_ERR_ARG);
    dlp_push_stop(s);
    CHECK(open_path(path, FIELDS, 2, &err) == DLP_STOPPED);
    CHECK(dlp_push_close(s) == DLP_OK);
    CHECK(open_path(path, FIELDS, 2, &err) == DLP_ERR_SYSTEM && err.errnum == ENOENT);
}

/* Another program's memory: one that is cut, each of its head's words changed, another version,
   ragged records, flags that nobody knows. Whatever stands there, nothing is read beyond it. */
static void memory__hostile__refused(void) {
    char path[96];
    dlp_push *s = NULL;
    dlp_error err = {0};
    inside_push_head *head;
    const void *memory;
    uint8_t *bytes;
    uint64_t n;
    snprintf(path, sizeof path, "%s", in_rig("made-up"));
    CHECK(dlp_push_open(
              &s,
              &(dlp_push_desc){.fields = FIELDS, .n_fields = 2, .max_producers = 2, .writers = 1},
              &err) == DLP_OK);
    memory = inside_push_memory(s, &n);
    bytes = malloc(n);
    memcpy(bytes, memory, n);
    head = (inside_push_head *)(void *)bytes;
    CHECK(open_made_up(path, bytes, n, &err) == DLP_OK);
    for (size_t cut = 1; cut < n; cut = cut < 256 ? cut + 16 : cut * 2)
        CHECK(open_made_up(path, bytes, cut, &err) == DLP_ERR_CORRUPT);
    for (size_t at = 0; at + 4 <= sizeof *head; at += 4) {
        static const uint32_t values[] = {0, 1, 0x7fffffff, 0xffffffff};
        uint32_t was;
        memcpy(&was, bytes + at, 4);
        for (int v = 0; v < 4; v++) {
            memcpy(bytes + at, &values[v], 4);
            (void)open_made_up(path, bytes, n, &err); /* refused, or it does no harm */
        }
        memcpy(bytes + at, &was, 4);
    }
    head->version++;
    CHECK(open_made_up(path, bytes, n, &err) == DLP_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "version 2") != NULL);
    head->version--;
    head->flags = INSIDE_PUSH_RAGGED;
    CHECK(open_made_up(path, bytes, n, &err) == DLP_ERR_ARG && strcmp(err.field, "fields") == 0);
    head->flags = 2 * INSIDE_PUSH_RAGGED;
    CHECK(open_made_up(path, bytes, n, &err) == DLP_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "flags") != NULL);
    free(bytes);
    CHECK(dlp_push_close(s) == DLP_OK);
}

/* What answers at the path is no push, or hands out a file that it may cut later. */
static void door__hostile__refused(void) {
    char path[96];
    static const char text[sizeof(inside_push_head) + 8];
    const char *file = rig_write("cuttable", text, sizeof text);
    dlp_error err = {0};
    void *door;
    int memory = open(file, O_RDWR);
    struct sockaddr_un at;
    struct sockaddr *name = (struct sockaddr *)(void *)&at;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(path, sizeof path, "%s", in_rig("hostile"));
    CHECK((door = inside_door_open(path, memory, &err)) != NULL);
    CHECK(open_path(path, FIELDS, 2, &err) == DLP_ERR_CORRUPT);
    CHECK(strstr(err.message, "sealed") != NULL);
    inside_door_close(door, path);
    CHECK(inside_door_address(&at, path) && bind(fd, name, sizeof at) == 0 && listen(fd, 1) == 0);
    CHECK(open_path(path, FIELDS, 2, &err) == DLP_ERR_SYSTEM && err.errnum == EPROTOTYPE);
    CHECK(close(memory) == 0 && close(fd) == 0);
    CHECK(unlink(path) == 0);
}

/* What lies in a lane is not trusted: a mark that is none, a tail out of range. */
static void lane__damaged__an_error_that_names_the_producer(void) {
    for (int how = 0; how < 2; how++) {
        rig r = begin((dlp_push_desc){.capacity = 8}, 0, 1);
        dlp_pusher *u = producer(r.push, 3);
        dlp_batch *b = NULL;
        CHECK(push_one(u, 0, 0) == DLP_OK);
        if (how == 0)
            memset(inside_pusher_tx(u)->lane.slots, 0xff, 8);
        else
            inside_pusher_tx(u)->lane.lane->tail += 1000;
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_ERR_CALLBACK);
        CHECK(strstr(dlp_pipe_error(r.pipe)->message, "producer 3") != NULL);
        dlp_pusher_close(u);
        end(&r);
    }
}

/* The same of one that comes behind others, in a run. */
static void lane__damaged_in_a_run__those_before_come(void) {
    for (int workers = 0; workers < 2; workers++) {
        rig r = begin((dlp_push_desc){.capacity = 64}, workers, 4);
        dlp_pusher *u = producer(r.push, 3);
        dlp_batch *b = NULL;
        uint64_t n = 0;
        int rc;
        CHECK(push_all(u, 0, 4, 0) == DLP_OK);
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK);
        dlp_pipe_release(r.pipe, b);
        for (uint64_t i = 4; i < 12; i++) {
            void *data[2];
            uint64_t mark = UINT64_MAX;
            if (i != 10) CHECK(push_one(u, i, 0) == DLP_OK);
            if (i != 10) continue;
            CHECK(dlp_pusher_begin(u, data, 0) == DLP_OK);
            inside_pusher_forget(u);
            memcpy(inside_pusher_tx(u)->lane.slots + i * inside_pusher_tx(u)->lane.record_bytes,
                   &mark, 8);
            CHECK(dlp_mpsc_commit(inside_pusher_tx(u), 1) == DLP_OK);
        }
        while ((rc = dlp_pipe_next_timeout(r.pipe, &b, SOON_MS)) == DLP_OK) {
            n += b->count;
            dlp_pipe_release(r.pipe, b);
        }
        CHECK(rc == DLP_ERR_CALLBACK && n == 4);
        CHECK(strstr(dlp_pipe_error(r.pipe)->message, "producer 3") != NULL);
        dlp_pusher_close(u);
        end(&r);
    }
}

/* Where such rows are left out, after their tries, the stream ends there. */
static void lane__damaged_rows_left_out__ends(void) {
    push_loader d = {
        .push = {.capacity = 8, .fields = FIELDS, .n_fields = 2, .writers = 1},
        .loader = {.batch_size = 1, .workers = {.on_error = DLP_ON_ERROR_DROP, .retries = 2}}};
    rig r = {NULL, NULL};
    dlp_pusher *u;
    dlp_batch *b = NULL;
    dlp_error err = {0};
    int rc = DLP_OK;
    CHECK(push_loader_open(&r.pipe, &r.push, &d, &err) == DLP_OK);
    u = producer(r.push, 3);
    CHECK(push_one(u, 0, 0) == DLP_OK && push_one(u, 1, 0) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK && b->count == 1);
    dlp_pipe_release(r.pipe, b);
    inside_pusher_tx(u)->lane.lane->tail += 1000;
    /* what was seen before the damage, and the row that is left out */
    for (int i = 0; i < 3 && (rc = dlp_pipe_next_timeout(r.pipe, &b, SOON_MS)) == DLP_OK; i++)
        dlp_pipe_release(r.pipe, b);
    CHECK(rc == DLP_END);
    dlp_pusher_close(u);
    end(&r);
}

/* Tried again only later, while another row is asked for: it is an error still. */
static void lane__damaged_and_tried_later__an_error(void) {
    push_loader d = {
        .push = {.capacity = 8, .fields = FIELDS, .n_fields = 2, .writers = 1},
        .loader = {.batch_size = 2, .workers = {.retries = 1, .retry_backoff_ms = 10}}};
    rig r = {NULL, NULL};
    dlp_pusher *u;
    dlp_batch *b = NULL;
    CHECK(push_loader_open(&r.pipe, &r.push, &d, NULL) == DLP_OK);
    u = producer(r.push, 3);
    CHECK(push_one(u, 0, 0) == DLP_OK);
    inside_pusher_tx(u)->lane.lane->tail += 1000;
    CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_ERR_CALLBACK);
    CHECK(strstr(dlp_pipe_error(r.pipe)->message, "producer 3 is damaged") != NULL);
    dlp_pusher_close(u);
    end(&r);
}

/* Nor what lies before the lanes: whoever looks at them is not led elsewhere. */
static void bundle__damaged__looks_do_no_harm(void) {
    rig r = begin((dlp_push_desc){.capacity = 8}, 0, 1);
    dlp_pusher *u = producer(r.push, 3);
    dlp_mpsc *bundle = inside_push_bundle(r.push);
    dlp_push_stats s;
    CHECK(push_one(u, 0, 0) == DLP_OK);
    memset(bundle, 0xff, offsetof(dlp_mpsc, consumer_wake));
    bundle->owners_offset = UINT64_C(1) << 44;
    CHECK(dlp_push_look(r.push, 0, &s) == DLP_OK && s.attached == 1 && s.waiting == 1);
    dlp_pusher_close(u);
    end(&r);
}

int main(void) {
    rig_begin("push");
    threads__several__each_in_its_order();
    threads__one_lane__each_ends();
    callback_around__sees_each_item_unless_known();
    fields_of_all_sizes__each_whole();
    dataset_of_before__own_items__push_not_asked(0);
    dataset_of_before__own_items__push_not_asked(1);
    second_pipe__while_one_reads__refused();
    batch_begun__rest_comes_or_stop__whole_or_short();
    awake__threads_above_cores__only_yields();
    explain__reader_is_the_limit__no_second_worker_advised();
    processes__killed__item_unseen_successor_goes_on();
    processes__killed_after_the_end__said_once();
    waiting__stream_has_ended__producers_are_told();
    waiting__pipe_is_closed__producer_is_told();
    reader__killed__producers_are_told();
    full__refuse__counted();
    full__newest__last_ones_stay();
    full__newest_and_its_end__last_ones_stay();
    waiting__stop_and_close__end_it();
    capacity__not_given__64_KiB();
    descs__wrong__named();
    by_hand__not_one_reader__refused();
    path__no_push_or_another__refused();
    memory__hostile__refused();
    door__hostile__refused();
    lane__damaged__an_error_that_names_the_producer();
    lane__damaged_in_a_run__those_before_come();
    lane__damaged_rows_left_out__ends();
    lane__damaged_and_tried_later__an_error();
    bundle__damaged__looks_do_no_harm();
    rig_end();
    return test_end("push");
}
