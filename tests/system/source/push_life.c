/* needs: parts */
/* Who lives, on either side of a push: producers of one number, killed ones and their successors,
   other namespaces, a third program that cuts what it finds, readers that were killed, writers that
   are all gone, a pipe that has an error. */
#define _GNU_SOURCE
#include "../../rig/push_rig.h"
#include "../../rig/inside.h"

static dlp_push_stats look(const dlp_push *push, uint32_t number) {
    dlp_push_stats s = {0};
    CHECK(dlp_push_look(push, number, &s) == DLP_OK);
    return s;
}

static int try_open(const dlp_pusher_desc *d, dlp_pusher **u, dlp_error *err) {
    *u = NULL;
    memset(err, 0, sizeof *err);
    return dlp_pusher_open(u, d, err);
}

static dlp_pusher_desc by(const dlp_push *push, const char *path, uint32_t number) {
    dlp_pusher_desc d = {.push = path ? NULL : push, .path = path, .number = number};
    if (path) d.fields = FIELDS, d.n_fields = 2;
    return d;
}

/* ---- places ---- */

/* Two that live have never one number: in threads and in processes, by the push and by its path. */
static void places__two_living_of_one_number__second_refused(void) {
    for (int by_path = 0; by_path < 2; by_path++) {
        const char *path = by_path ? in_rig("two") : NULL;
        uint64_t next[17] = {0};
        rig r = begin((dlp_push_desc){.path = path, .max_producers = 3, .writers = 2}, 1, 4);
        dlp_pusher_desc two = by(r.push, path, 2), any = by(r.push, path, 0);
        dlp_pusher *u = NULL, *v = NULL, *more[2] = {NULL};
        dlp_error err;
        pid_t pid;
        CHECK(try_open(&two, &u, &err) == DLP_OK);
        CHECK(try_open(&two, &v, &err) == DLP_ERR_BUSY && v == NULL);
        CHECK(strcmp(err.field, "number") == 0 && strstr(err.message, "producer 2 lives") != NULL);
        if ((pid = fork()) == 0) _exit(try_open(&two, &v, &err) == DLP_ERR_BUSY ? 0 : 1);
        CHECK(ended_well(pid));
        CHECK(push_all(u, 0, 10, 0) == DLP_OK);
        for (int i = 0; i < 2; i++) CHECK(try_open(&any, &more[i], &err) == DLP_OK);
        CHECK(dlp_pusher_number(more[0]) == 1 && dlp_pusher_number(more[1]) == 3);
        CHECK(try_open(&any, &v, &err) == DLP_ERR_BUSY && strstr(err.message, "all 3") != NULL);
        CHECK(look(r.push, 0).attached == 3);
        dlp_pusher_close(u);
        CHECK(look(r.push, 0).attached == 2);
        CHECK(try_open(&two, &u, &err) == DLP_OK && push_all(u, 10, 20, 1) == DLP_OK);
        CHECK(push_all(more[0], 0, 5, 1) == DLP_OK);
        CHECK(take_all(r.pipe, next, 4) == DLP_END && next[2] == 20 && next[1] == 5);
        dlp_pusher_close(u);
        for (int i = 0; i < 2; i++) dlp_pusher_close(more[i]);
        end(&r);
    }
}

/* A killed producer's place is free at once, by number and without one. */
static void places__killed__free_at_once(void) {
    for (int by_path = 0; by_path < 2; by_path++) {
        const char *path = by_path ? in_rig("killed") : NULL;
        uint64_t next[17] = {0};
        rig r = begin((dlp_push_desc){.path = path, .max_producers = 1}, 1, 4);
        dlp_pusher_desc any = by(r.push, path, 0);
        dlp_pusher *u;
        dlp_error err;
        for (uint64_t i = 0; i < 3; i++) {
            pid_t pid = child(by_path ? NULL : r.push, path, i % 2, 10 * i, 10 * i + 10, 0, 1);
            CHECK(status_of(pid) == WAS_KILLED);
            CHECK(look(r.push, 1).attached == 0);
        }
        CHECK(try_open(&any, &u, &err) == DLP_OK && look(r.push, 0).attached == 1);
        CHECK(push_all(u, 30, 40, 1) == DLP_OK);
        CHECK(take_all(r.pipe, next, 4) == DLP_END && next[1] == 40);
        dlp_pusher_close(u);
        end(&r);
    }
}

/* One without a number takes a place in which nobody was killed, as long as there is one. */
static void places__killed__left_to_a_successor(void) {
    rig r = begin((dlp_push_desc){.max_producers = 3, .writers = 3}, 1, 4);
    dlp_pusher *u[3];
    pid_t pid = child(r.push, NULL, 1, 0, 3, 0, 1);
    CHECK(status_of(pid) == WAS_KILLED);
    for (uint32_t i = 0; i < 3; i++) u[i] = producer(r.push, 0);
    CHECK(dlp_pusher_number(u[0]) == 2 && dlp_pusher_number(u[1]) == 3);
    CHECK(dlp_pusher_number(u[2]) == 1);
    for (uint32_t i = 0; i < 3; i++) dlp_pusher_close(u[i]);
    dlp_push_stop(r.push);
    end(&r);
}

/* ---- namespaces ---- */

/* A producer in another pid namespace waits as long as the consumer pauses. */
static void apart__consumer_pauses__producer_waits(void) {
    const char *path = in_rig("apart");
    uint64_t next[17] = {0};
    rig r = begin((dlp_push_desc){.path = path, .capacity = 4}, 1, 4);
    pid_t pid = fork_apart();
    if (pid == 0) {
        dlp_pusher_desc d = by(NULL, path, 1);
        dlp_pusher *u;
        dlp_error err;
        if (try_open(&d, &u, &err) != DLP_OK) _exit(2);
        _exit(push_all(u, 0, 500, 1) == DLP_OK ? 0 : 3);
    }
    usleep(500000); /* longer than it takes to look twice whether the reader lives */
    CHECK(take_all(r.pipe, next, 4) == DLP_END && next[1] == 500);
    CHECK(status_of(pid) == 0);
    end(&r);
}

/* One that waits there is told that the reader was killed. */
static void apart__reader_killed__producer_is_told(void) {
    const char *path = in_rig("apart-orphan");
    pid_t producer_pid, pid = fork();
    if (pid == 0) {
        dlp_push *s = NULL;
        dlp_push_desc d = {
            .fields = FIELDS, .n_fields = 2, .capacity = 2, .writers = 1, .path = path};
        if (dlp_push_open(&s, &d, NULL) != DLP_OK) _exit(1);
        for (;;) pause();
    }
    for (int i = 0; i < 1000 && access(path, F_OK) != 0; i++) usleep(10000);
    usleep(50000);
    if ((producer_pid = fork_apart()) == 0) {
        dlp_pusher_desc d = by(NULL, path, 1);
        dlp_pusher *u;
        dlp_error err;
        if (try_open(&d, &u, &err) != DLP_OK) _exit(2);
        if (push_one(u, 0, 0) != DLP_OK || push_one(u, 1, 0) != DLP_OK) _exit(3);
        if (push_one(u, 2, 400) != DLP_TIMEOUT) _exit(4);
        _exit(push_one(u, 2, SOON_MS) == DLP_STOPPED ? 0 : 5);
    }
    usleep(200000);
    CHECK(waitpid(producer_pid, NULL, WNOHANG) == 0);
    usleep(600000);
    CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == WAS_KILLED);
    CHECK(status_of(producer_pid) == 0);
    unlink(path);
}

/* A killed one there is seen to be gone; its successor is here. */
static void apart__producer_killed__place_is_free(void) {
    const char *path = in_rig("apart-killed");
    uint64_t next[17] = {0};
    rig r = begin((dlp_push_desc){.path = path, .max_producers = 1}, 1, 4);
    pid_t pid = fork_apart();
    dlp_pusher *u;
    if (pid == 0) {
        dlp_pusher_desc d = by(NULL, path, 1);
        dlp_error err;
        if (try_open(&d, &u, &err) != DLP_OK || push_all(u, 0, 10, 0) != DLP_OK) _exit(2);
        for (;;) pause();
    }
    for (int i = 0; i < 1000 && look(r.push, 1).items + look(r.push, 1).waiting < 10; i++)
        usleep(10000);
    CHECK(look(r.push, 0).attached == 1);
    CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == WAS_KILLED);
    for (int i = 0; i < 500 && look(r.push, 0).attached == 1; i++) usleep(10000);
    CHECK(look(r.push, 0).attached == 0);
    u = producer(r.push, 1);
    CHECK(push_all(u, 10, 20, 1) == DLP_OK);
    CHECK(take_all(r.pipe, next, 4) == DLP_END && next[1] == 20);
    dlp_pusher_close(u);
    end(&r);
}

/* ---- a third program ---- */

static void path__cut_by_a_third_program__no_item_lost(void) {
    for (int apart = 0; apart < 1 + may_be_apart(); apart++) {
        const char *path = in_rig("cut");
        uint64_t next[17] = {0};
        rig r = begin((dlp_push_desc){.path = path, .capacity = 16, .writers = 2}, 1, 32);
        pid_t third = spoiler(path), pid[2];
        for (uint32_t i = 0; i < 2; i++) {
            dlp_pusher_desc d = by(NULL, path, i + 1);
            dlp_pusher *u;
            dlp_error err;
            if ((pid[i] = i == 1 && apart ? fork_apart() : fork()) != 0) continue;
            usleep(20000);
            if (try_open(&d, &u, &err) != DLP_OK) _exit(1);
            _exit(push_all(u, 0, 5000, 1) == DLP_OK ? 0 : 2);
        }
        CHECK(take_all(r.pipe, next, 32) == DLP_END && next[1] == 5000 && next[2] == 5000);
        for (int i = 0; i < 2; i++) CHECK(status_of(pid[i]) == 0);
        CHECK(kill(third, SIGKILL) == 0 && status_of(third) == WAS_KILLED);
        end(&r);
        CHECK(access(path, F_OK) != 0);
    }
}

/* Somebody removed the path, and put something else there: that stays, and producers go on. */
static void path__replaced__producers_go_on(void) {
    const char *path = in_rig("replaced");
    uint64_t next[17] = {0};
    rig r = begin((dlp_push_desc){.path = path}, 1, 4);
    dlp_pusher_desc d = by(NULL, path, 0);
    dlp_pusher *u;
    dlp_error err;
    CHECK(try_open(&d, &u, &err) == DLP_OK);
    CHECK(unlink(path) == 0 && rig_write("replaced", "theirs", 6) != NULL);
    CHECK(push_all(u, 0, 100, 1) == DLP_OK);
    CHECK(take_all(r.pipe, next, 4) == DLP_END && next[1] == 100);
    dlp_pusher_close(u);
    end(&r);
    CHECK(access(path, F_OK) == 0);
}

/* ---- readers that were killed ---- */

/* keeps: a child that it forked lives on, and has what it had open. Returns the child, or 0. */
static pid_t killed_reader(const char *path, int keeps) {
    int said[2];
    pid_t grandchild = 0, pid;
    CHECK(pipe(said) == 0);
    if ((pid = fork()) == 0) {
        dlp_push *s = NULL;
        dlp_push_desc d = {.fields = FIELDS, .n_fields = 2, .writers = 1, .path = path};
        if (dlp_push_open(&s, &d, NULL) != DLP_OK) _exit(1);
        if (keeps && (grandchild = fork()) == 0)
            for (;;) pause();
        if (write(said[1], &grandchild, sizeof grandchild) != sizeof grandchild) _exit(2);
        for (;;) pause();
    }
    close(said[1]);
    CHECK(read(said[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    close(said[0]);
    CHECK(kill(pid, SIGKILL) == 0 && status_of(pid) == WAS_KILLED);
    return grandchild;
}

static bool peer_is_known(void) { /* by SO_PEERPIDFD (Linux 6.5) */
    int fd[2], pidfd = -1, rc;
    socklen_t n = sizeof pidfd;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd) == 0);
    rc = getsockopt(fd[0], SOL_SOCKET, 77, &pidfd, &n);
    close(fd[0]);
    close(fd[1]);
    if (rc == 0) close(pidfd);
    return rc == 0;
}

static void path__reader_was_killed__taken_over(void) {
    for (int keeps = 0; keeps < 1 + peer_is_known(); keeps++) {
        const char *path = in_rig("left");
        uint64_t next[17] = {0};
        pid_t child_pid = killed_reader(path, keeps), pid;
        rig r;
        CHECK(access(path, F_OK) == 0);
        r = begin((dlp_push_desc){.path = path}, 1, 4);
        pid = child(NULL, path, 1, 0, 100, 1, 0);
        CHECK(take_all(r.pipe, next, 4) == DLP_END && next[1] == 100 && ended_well(pid));
        end(&r);
        CHECK(access(path, F_OK) != 0);
        if (keeps) CHECK(kill(child_pid, SIGKILL) == 0);
    }
}

/* Several programs start at once at a path that a killed one left: one gets it, and has it. */
static void path__many_take_over_at_once__one_has_it(void) {
    for (int round = 0; round < 10; round++) {
        const char *path = in_rig("contested");
        int won = 0, said[2];
        pid_t pid[6];
        char c;
        CHECK(pipe(said) == 0);
        killed_reader(path, 0);
        for (int i = 0; i < 6; i++) {
            dlp_push *s = NULL;
            dlp_push_desc d = {.fields = FIELDS, .n_fields = 2, .writers = 1, .path = path};
            dlp_error err = {0};
            if ((pid[i] = fork()) != 0) continue;
            close(said[1]);
            if (dlp_push_open(&s, &d, &err) != DLP_OK) _exit(err.errnum == EADDRINUSE ? 1 : 2);
            CHECK(read(said[0], &c, 1) == 0); /* until all others have tried */
            _exit(dlp_push_close(s) == DLP_OK && access(path, F_OK) != 0 ? 0 : 3);
        }
        close(said[0]);
        for (int tried = 0; tried < 5;) { /* five have lost */
            int status = 0;
            pid_t gone = waitpid(-1, &status, 0);
            for (int i = 0; i < 6; i++)
                if (pid[i] == gone) pid[i] = 0, tried++;
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
            if (gone < 0) break;
        }
        close(said[1]);
        for (int i = 0; i < 6; i++)
            if (pid[i] > 0) won += status_of(pid[i]) == 0;
        CHECK(won == 1);
    }
}

/* ---- writers that are gone ---- */

typedef struct heard {
    pthread_mutex_t lock;
    char text[1000];
} heard;

static void hear(void *user, const char *message) {
    heard *h = user;
    pthread_mutex_lock(&h->lock);
    strncat(h->text, message, sizeof h->text - strlen(h->text) - 1);
    strncat(h->text, "\n", sizeof h->text - strlen(h->text) - 1);
    pthread_mutex_unlock(&h->lock);
}

static int has_heard(heard *h, const char *words) {
    int has;
    pthread_mutex_lock(&h->lock);
    has = strstr(h->text, words) != NULL;
    pthread_mutex_unlock(&h->lock);
    return has;
}

static int heard_soon(heard *h, const char *words) {
    for (int i = 0; i < 500 && !has_heard(h, words); i++) usleep(10000);
    return has_heard(h, words);
}

static int explains(dlp_pipe *p, const char *words) {
    char text[4000];
    CHECK(dlp_pipe_explain(p, text, sizeof text) > 0);
    return strstr(text, words) != NULL;
}

static rig begin_heard(uint32_t writers, uint32_t lost_ms, int workers, heard *h) {
    push_loader d = {
        .push = {.fields = FIELDS, .n_fields = 2, .writers = writers, .lost_ms = lost_ms},
        .loader = {.batch_size = 4, .num_workers = workers, .pipe = {.log = hear, .log_user = h}}};
    rig r = {NULL, NULL};
    pthread_mutex_init(&h->lock, NULL);
    CHECK(push_loader_open(&r.pipe, &r.push, &d, NULL) == DLP_OK);
    return r;
}

/* how: killed; closed without the end; the end was said, but by one of two. */
enum { KILLED, CLOSED, TOO_FEW, HOWS };
static void lose(const rig *r, int how) {
    pid_t pid = child(r->push, NULL, 2, 0, 6, how == TOO_FEW, how == KILLED);
    int status = status_of(pid);
    CHECK(status == (how == KILLED ? WAS_KILLED : 0));
}

static void writers__all_gone__told_then_an_error(void) {
    for (int i = 0; i < 2 * HOWS; i++) {
        const int how = i / 2, workers = i % 2;
        heard h = {.text = ""};
        rig r = begin_heard(2, 300, workers, &h);
        uint64_t began = test_now_ns();
        dlp_batch *b = NULL;
        lose(&r, how);
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK && b->count == 4);
        dlp_pipe_release(r.pipe, b);
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_ERR_CALLBACK);
        CHECK(test_now_ns() - began > UINT64_C(300000000));
        CHECK(strstr(dlp_pipe_error(r.pipe)->message, "no producer has lived for 300 ms") != NULL);
        CHECK(has_heard(&h, how == TOO_FEW ? "1 of 2 streams have ended; start the others"
                                           : "0 of 2 streams have ended; the last was producer 2"));
        CHECK(explains(r.pipe, "Limit: no producer lives"));
        end(&r);
    }
}

/* In time it goes on, and nothing is said any more. */
static void writers__restarted__go_on(void) {
    heard h = {.text = ""};
    uint64_t next[17] = {0};
    rig r = begin_heard(1, 0, 1, &h);
    dlp_batch *b = NULL;
    dlp_pusher *u;
    lose(&r, KILLED);
    CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK);
    dlp_pipe_release(r.pipe, b);
    CHECK(heard_soon(&h, "no producer lives"));
    CHECK(explains(r.pipe, "Limit: no producer lives, and 0 of 1 streams have ended"));
    CHECK(explains(r.pipe, "start producer 2 again"));
    CHECK(dlp_pipe_next_timeout(r.pipe, &b, 100) == DLP_TIMEOUT);
    u = producer(r.push, 2);
    CHECK(heard_soon(&h, "is there again") && !explains(r.pipe, "no producer lives"));
    CHECK(push_all(u, 6, 50, 1) == DLP_OK);
    next[2] = 4;
    CHECK(take_all(r.pipe, next, 4) == DLP_END && next[2] == 50);
    dlp_pusher_close(u);
    end(&r);
}

/* As long as one lives that has not said its end, or none has come, next waits. */
static void writers__one_lives_or_none_came__waits(void) {
    for (int lives = 0; lives < 2; lives++) {
        heard h = {.text = ""};
        rig r = begin_heard(3, 50, 1, &h);
        dlp_pusher *u = lives ? producer(r.push, 1) : NULL, *ended;
        dlp_batch *b = NULL;
        if (lives) lose(&r, KILLED);
        if (lives) CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_OK);
        if (lives) dlp_pipe_release(r.pipe, b);
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, 500) == DLP_TIMEOUT && h.text[0] == 0);
        ended = producer(r.push, 3); /* it lives, but will push nothing more */
        CHECK(push_all(ended, 0, 1, 1) == DLP_OK);
        if (lives) dlp_pusher_close(u);
        CHECK(dlp_pipe_next_timeout(r.pipe, &b, SOON_MS) == DLP_ERR_CALLBACK);
        CHECK(strstr(dlp_pipe_error(r.pipe)->message, "1 of 3 streams") != NULL);
        dlp_pusher_close(ended);
        end(&r);
    }
}

/* Rows that fail are left out: the stream ends there. */
static void writers__all_gone_and_rows_left_out__ends(void) {
    push_loader d = {
        .push = {.fields = FIELDS, .n_fields = 2, .writers = 1, .lost_ms = 50},
        .loader = {.batch_size = 4, .workers = {.on_error = DLP_ON_ERROR_DROP, .retries = 2}}};
    rig r = {NULL, NULL};
    dlp_batch *b = NULL;
    int rc = DLP_OK;
    CHECK(push_loader_open(&r.pipe, &r.push, &d, NULL) == DLP_OK);
    lose(&r, KILLED);
    for (int i = 0; i < 3 && (rc = dlp_pipe_next_timeout(r.pipe, &b, SOON_MS)) == DLP_OK; i++)
        dlp_pipe_release(r.pipe, b);
    CHECK(rc == DLP_END);
    end(&r);
}

/* ---- a pipe that has an error ---- */

static int fails_later(void *user, dlp_item *it) {
    (void)user;
    return it->index < 8 ? 0 : -1;
}

static dlp_pipe *failing(dlp_push *push, int workers) {
    const dlp_node nodes[] = {
        {.name = "push",
         .verb = DLP_PUSH,
         .push = {.source = push},
         .workers = {.num_workers = workers}},
        {.name = "map",
         .verb = DLP_MAP,
         .map = {.item = fails_later},
         .workers = {.num_workers = DLP_NONE}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}},
    };
    dlp_pipe *p = NULL;
    CHECK(dlp_pipe_open(&p, DLP_NODES(nodes), NULL, NULL) == DLP_OK);
    CHECK(p != NULL);
    return p;
}

/* Producers that wait for room are told before the pipe is closed. */
static void error__of_the_pipe__producers_are_told(void) {
    for (int i = 0; i < 4; i++) {
        const char *path = i / 2 ? in_rig("error") : NULL;
        dlp_push_desc d = {
            .fields = FIELDS, .n_fields = 2, .writers = 1, .capacity = 4, .path = path};
        uint64_t n = 0;
        rig r = {NULL, NULL};
        dlp_pusher_desc desc;
        dlp_pusher *u = NULL;
        dlp_batch *b = NULL;
        dlp_error err;
        pid_t pid;
        int rc;
        CHECK(dlp_push_open(&r.push, &d, &err) == DLP_OK);
        r.pipe = failing(r.push, i % 2);
        desc = by(r.push, path, 1);
        if ((pid = fork()) == 0) {
            if (try_open(&desc, &u, &err) != DLP_OK) _exit(1);
            while ((rc = push_one(u, n++, 3000)) == DLP_OK) continue;
            _exit(rc == DLP_STOPPED ? 0 : 2);
        }
        while ((rc = dlp_pipe_next_timeout(r.pipe, &b, SOON_MS)) == DLP_OK)
            dlp_pipe_release(r.pipe, b);
        CHECK(rc == DLP_ERR_CALLBACK);
        CHECK(status_of(pid) == 0);
        end(&r);
    }
}

int main(void) {
    rig_begin("push_life");
    places__two_living_of_one_number__second_refused();
    places__killed__free_at_once();
    places__killed__left_to_a_successor();
    if (may_be_apart()) {
        apart__consumer_pauses__producer_waits();
        apart__reader_killed__producer_is_told();
        apart__producer_killed__place_is_free();
    }
    path__cut_by_a_third_program__no_item_lost();
    path__replaced__producers_go_on();
    path__reader_was_killed__taken_over();
    path__many_take_over_at_once__one_has_it();
    writers__all_gone__told_then_an_error();
    writers__restarted__go_on();
    writers__one_lives_or_none_came__waits();
    writers__all_gone_and_rows_left_out__ends();
    error__of_the_pipe__producers_are_told();
    rig_end();
    return test_end("push_life");
}
