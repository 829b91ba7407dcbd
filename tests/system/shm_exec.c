/* needs: cache */
/* Worker processes that begin by exec (DLP_SHM_EXEC): this very program, run again, with nothing of
   the caller's memory but what it is told. Some cases need a caller of their own: the program then
   runs itself, and SHM_EXEC_CASE says as which. shm_exec */
#define _GNU_SOURCE
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"

#include "../rig/pipe_rig.h"
#include "../rig/shm_rig.h"
#include <sys/statvfs.h>

#define WORD UINT64_C(0x5eed0fb10b)
#define CASE_ENV "SHM_EXEC_CASE"

typedef struct blob {
    uint64_t n_items; /* first: rig_function reads it */
    uint64_t word;
    int32_t init_fails;
    int32_t cpu[2]; /* of fetch and item maps, -1: any */
    char file[64];  /* a line is added for each init; "" */
} blob;

/* ---- what runs in the workers ---- */

static blob *mine_; /* NULL in the caller: nothing that it has is here */

static int made_init(const void *from, uint64_t bytes, void **user) {
    static blob copy;
    if (bytes != sizeof copy) return 7;
    memcpy(&copy, from, sizeof copy);
    if (copy.word != WORD) return 8;
    if (copy.init_fails) return 9;
    mine_ = &copy;
    *user = &copy;
    return 0;
}

static int on_cpu(int cpu) { /* and on no other */
    uint64_t mask[16] = {0};
    if (cpu < 0) return 1;
    if (syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) < 0) return 0;
    return mask[0] == UINT64_C(1) << cpu;
}

static int in_worker(const void *user, int which) {
    return user != NULL && user == mine_ && mine_->word == WORD &&
           (which < 0 || on_cpu(mine_->cpu[which]));
}

static int made_worker_init(void *user, int worker, void **state) {
    if (!in_worker(user, -1) || worker < 0) return 1;
    *state = (uint8_t *)user + 1;
    return 0;
}

static void made_worker_exit(void *user, int worker, void *state) {
    const blob *b = user;
    FILE *f;
    if (b->file[0] == 0 || state != (uint8_t *)user + 1 || worker < 0) return;
    if ((f = fopen(b->file, "a")) == NULL) return;
    fputs("exit\n", f);
    fclose(f);
}

static int made_fetch(void *user, dlp_item *it) {
    if (!in_worker(user, 0)) return dlp_fail(it->call, 0, "fetch is not where it should be");
    return rig_fetch(user, it);
}

static int made_item_map(void *user, dlp_item *it) {
    if (!in_worker(user, 1)) return dlp_fail(it->call, 0, "the map is not where it should be");
    return rig_item_map(user, it);
}

static int made_batch_map(void *user, dlp_batch *b, void *state) {
    return in_worker(user, -1) ? rig_batch_map(user, b, state) : 1;
}

static int made_collate(void *user, dlp_collate *c) {
    return in_worker(user, -1) ? dlp_collate_pad(user, c) : 1;
}

static uint64_t made_function(void *user, uint64_t epoch, uint64_t position) {
    return rig_function(user, epoch, position);
}

/* What an item that fails is replaced by: known without the random bits. */
static uint64_t made_replacement(void *user, uint64_t epoch, uint64_t position, uint64_t random) {
    (void)random;
    return (position * 2 + epoch) % *(const uint64_t *)user / 10 * 10;
}

static int picky_item_map(void *user, dlp_item *it) {
    if (it->index % 10 == 7) return dlp_fail(it->call, 0, "none of these");
    return made_item_map(user, it);
}

/* Starts a program: the supervisor's line must not be in its environment. */
static int shell_fetch(void *user, dlp_item *it) {
    if (it->index == 3 && system("test -z \"$DLPIPE_SHM_SUPERVISOR\"") != 0)
        return dlp_fail(it->call, 0, "the environment has the supervisor's line");
    return made_fetch(user, it);
}

static int slow_fetch(void *user, dlp_item *it) {
    test_pause(1000000);
    return made_fetch(user, it);
}

static int kept_fetch(void *user, dlp_item *it) { /* the same in each epoch */
    uint64_t words[3] = {it->index, it->index * 3, ~it->index};
    uint32_t label = (uint32_t)it->index;
    if (!in_worker(user, 0)) return dlp_fail(it->call, 0, "fetch is not where it should be");
    memcpy(it->data[0], words, sizeof words);
    memcpy(it->data[1], &label, sizeof label);
    return 0;
}

static int nobodys_item_map(void *user, dlp_item *it) { return made_item_map(user, it) + 0; }

static uint64_t nobodys_replacement(void *user, uint64_t epoch, uint64_t position,
                                    uint64_t random) {
    return made_replacement(user, epoch, position, random) + 0;
}

DLP_SHM_CALLBACK(made_init);
DLP_SHM_CALLBACK(made_worker_init);
DLP_SHM_CALLBACK(made_worker_exit);
DLP_SHM_CALLBACK(made_fetch);
DLP_SHM_CALLBACK(made_item_map);
DLP_SHM_CALLBACK(made_batch_map);
DLP_SHM_CALLBACK(made_collate);
DLP_SHM_CALLBACK(made_function);
DLP_SHM_CALLBACK(made_replacement);
DLP_SHM_CALLBACK(picky_item_map);
DLP_SHM_CALLBACK(shell_fetch);
DLP_SHM_CALLBACK(slow_fetch);
DLP_SHM_CALLBACK(kept_fetch);

/* ---- the caller ---- */

static void *thread_waits(void *arg) {
    while (__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE) == 0) test_pause(1000000);
    return NULL;
}

static blob blob_;
static dlp_shm_desc shm_;

static void exec_rig(rig *r, uint64_t n_items, int workers, int dispatch) {
    rig_init(r, n_items, 32);
    rig_order(r, DLP_ORDER_SHUFFLED);
    shm_processes(r, workers, dispatch);
    memset(&blob_, 0, sizeof blob_);
    memset(&shm_, 0, sizeof shm_);
    blob_.n_items = n_items;
    blob_.word = WORD;
    blob_.cpu[0] = blob_.cpu[1] = -1;
    shm_.start = DLP_SHM_EXEC;
    shm_.init = made_init;
    shm_.blob = &blob_;
    shm_.blob_bytes = sizeof blob_;
    r->pipe.shm = &shm_;
    r->dataset.fetch = made_fetch;
    for (int i = 0; i < RIG_MAPS; i++) {
        r->item_map[i].item = made_item_map;
        r->batch_map[i].batch = made_batch_map;
    }
}

/* A worker may begin when all is done; each is to have its turn. */
static void await_all_begun(dlp_pipe *p) {
    for (int i = 0, ms = 0; i < inside_workers(p); i++)
        for (; inside_is_process(p, i) && ms < 20000; ms++, test_pause(1000000))
            if (inside_tid(p, i) != 0) break;
}

/* All of it, each batch as it must be; worker 0 of the fetch stage is killed before batch kill. */
static void expect_all(rig *r, uint64_t kill_before) {
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0, per = rig_batches(r);
    uint64_t epochs = r->repeat.epochs ? (uint64_t)r->repeat.epochs : 1;
    int rc = DLP_OK;
    if (rig_open(r, &p) != DLP_OK) return;
    while (rc == DLP_OK) {
        if (n == kill_before) {
            pid_t pid = 0;
            for (int ms = 0; ms < 20000 && pid == 0; ms++) { /* it may not have begun yet */
                pid = inside_pid(p, 0);
                if (pid == 0) test_pause(1000000);
            }
            CHECK(pid > 1 && pid != getpid());
            if (pid > 1 && pid != getpid()) kill(pid, SIGKILL);
            for (int ms = 0; ms < 20000 && inside_restarts(p) == 0; ms++) test_pause(1000000);
        }
        if ((rc = dlp_pipe_next_timeout(p, &b, 20000)) != DLP_OK) break;
        CHECK(rig_batch_same(r, b, n / per, n % per));
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (rc != DLP_END) rig_say(p, rc);
    if (blob_.file[0]) await_all_begun(p);
    CHECK(rc == DLP_END && n == epochs * per);
    CHECK(inside_restarts(p) == (kill_before < n));
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(r);
}

static void exec__every_stage__same_bytes(int maps, int workers, int dispatch) {
    rig r;
    exec_rig(&r, 1000, workers, dispatch);
    r.n_item_maps = maps;
    r.n_batch_maps = maps;
    r.repeat.epochs = 2;
    expect_all(&r, UINT64_MAX);
}

static void exec__collate__same_bytes(int builtin) {
    rig r;
    exec_rig(&r, 1000, 2, 0);
    r.n_item_maps = r.n_batch_maps = 1;
    r.batch.collate = builtin ? dlp_collate_pad : made_collate;
    r.batch.batch_workers = 2;
    expect_all(&r, UINT64_MAX);
}

static void exec__orders__same_bytes(int order) {
    rig r;
    exec_rig(&r, 900, 2, 0);
    rig_order(&r, order);
    if (order == DLP_ORDER_FUNCTION) r.sampler.function = made_function;
    expect_all(&r, UINT64_MAX);
}

/* Each item of the subset comes once. CPU numbers lie before it, of odd counts. */
static void exec__subset__its_items(void) {
    static uint64_t subset[333];
    static const int32_t cpus[3] = {0, 0, 0};
    uint64_t sum = 0, n = 0, expected = 0, mask[16] = {0};
    dlp_pipe *p;
    dlp_batch *b;
    rig r;
    int rc;
    if (syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) < 0 || (mask[0] & 1) == 0) return;
    exec_rig(&r, 1000, 2, 0);
    for (uint64_t i = 0; i < 333; i++) expected += subset[i] = 3 * i + 1;
    r.sampler.subset = subset;
    r.sampler.n_subset = 333;
    r.batch.last = DLP_LAST_PARTIAL;
    r.n_item_maps = 1;
    r.fetch.affinity = r.item_map[0].workers.affinity = cpus;
    r.fetch.n_affinity = 3;
    r.item_map[0].workers.n_affinity = 1;
    blob_.cpu[0] = blob_.cpu[1] = 0;
    if (rig_open(&r, &p) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        const uint32_t *label = b->fields[1].data;
        for (uint32_t i = 0; i < b->count; i++) {
            CHECK(label[i] == b->index[i] && label[i] % 3 == 1);
            sum += label[i];
        }
        n += b->count;
        dlp_pipe_release(p, b);
    }
    if (rc != DLP_END) rig_say(p, rc);
    CHECK(rc == DLP_END && n == 333 && sum == expected);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void exec__affinity__each_its_own(void) {
    static const int32_t one[1] = {1}, zero[1] = {0};
    uint64_t mask[16] = {0};
    rig r;
    if (syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) < 0 || (mask[0] & 3) != 3) return;
    exec_rig(&r, 500, 2, 0);
    r.n_item_maps = 1;
    r.fetch.affinity = one;
    r.fetch.n_affinity = 1;
    r.item_map[0].workers.affinity = zero;
    r.item_map[0].workers.n_affinity = 1;
    blob_.cpu[0] = 1;
    expect_all(&r, UINT64_MAX);
}

static void exec__mixed_with_threads__same_bytes(void) {
    rig r;
    exec_rig(&r, 1000, 2, 0);
    r.n_item_maps = r.n_batch_maps = 1;
    r.item_map[0].workers.placement = DLP_PLACE_THREADS;
    r.item_map[0].item = rig_item_map; /* of the caller: needs no name */
    r.batch_map[0].workers.num_workers = 0;
    r.batch_map[0].batch = rig_batch_map;
    expect_all(&r, 10);
}

/* The first stage that has processes is a later one, and needs the sampler's functions: for what
   takes the place of items that it fails. fetch: in threads, or inline; own: replacement. */
static void exec__later_stage_replaces__from_the_order(int threads, int own) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0, replaced = 0;
    int rc;
    exec_rig(&r, 300, 2, 0);
    rig_order(&r, DLP_ORDER_FUNCTION);
    r.sampler.function = made_function;
    r.sampler.replacement = own ? made_replacement : NULL;
    r.dataset.fetch = rig_fetch; /* of the caller */
    r.fetch.placement = DLP_PLACE_THREADS;
    r.fetch.num_workers = threads;
    r.n_item_maps = 1;
    r.item_map[0].item = picky_item_map;
    r.item_map[0].workers.on_error = DLP_ON_ERROR_REPLACE;
    if (rig_open(&r, &p) != DLP_OK) return;
    while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
        for (uint32_t row = 0; row < b->count; row++) {
            uint64_t at = b->position + row, index = b->index[row];
            if (at >= 300) break; /* padding */
            CHECK(b->valid[row] && ((const uint32_t *)b->fields[1].data)[row] == index);
            if (rig_row_same(&r, b, row, at)) continue;
            CHECK(rig_index(&r, 0, at) % 10 == 7 && index % 10 != 7);
            if (own) CHECK(index == made_replacement(&r.dataset.n_items, 0, at, 0));
            replaced++;
        }
        n++;
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    if (rc != DLP_END) rig_say(p, rc);
    CHECK(rc == DLP_END && n == rig_batches(&r) && replaced == 30 && inside_restarts(p) == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* A running pipe jumps to every place of its two epochs in turn, and back. */
static void exec__seek__goes_on_there(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_state state;
    exec_rig(&r, 300, 2, 0);
    r.repeat.epochs = 2;
    if (rig_open(&r, &p) != DLP_OK) return;
    for (uint64_t per = rig_batches(&r), i = 0; i < 2 * per; i++) {
        uint64_t at = i % 2 ? i / 2 : 2 * per - 1 - i / 2;
        CHECK(dlp_pipe_state_at(p, at / per, at % per, &state) == DLP_OK);
        CHECK(dlp_pipe_seek(p, &state, NULL) == DLP_OK);
        for (int k = 0; k < 2 && at < 2 * per; k++, at++) {
            CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK);
            CHECK(rig_batch_same(&r, b, at / per, at % per));
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

/* What a stage keeps for itself is there in the workers, too: the numbers of the cache. */
static void exec__cache__same_bytes_and_hits(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    dlp_stats s;
    uint64_t rows = 0, wrong = 0;
    exec_rig(&r, 300, 2, 0);
    r.dataset.fetch = kept_fetch;
    r.batch.last = DLP_LAST_PARTIAL;
    r.cache.bytes = 1 << 20;
    r.repeat.epochs = 4;
    if (rig_open(&r, &p) != DLP_OK) return;
    while (dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK) {
        const uint64_t *words = b->fields[0].data;
        for (uint32_t i = 0; i < b->count; i++, rows++)
            wrong += words[3 * i] != b->index[i] || words[3 * i + 1] != b->index[i] * 3 ||
                     words[3 * i + 2] != ~b->index[i];
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
    }
    CHECK(rows == 4 * 300 && wrong == 0 && dlp_pipe_stats(p, &s) == DLP_OK);
    CHECK(s.cache_bytes == s.cache_all_bytes && s.cache_hits >= 2 * 300);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    rig_free(&r);
}

static void exec__worker_killed__replaced(void) {
    rig r;
    exec_rig(&r, 5000, 2, 0);
    r.n_item_maps = r.n_batch_maps = 1;
    expect_all(&r, 20);
}

static void exec__worker_init_and_exit__run(void) {
    rig r;
    FILE *f;
    int lines = 0;
    exec_rig(&r, 500, 3, 0);
    snprintf(blob_.file, sizeof blob_.file, "/tmp/shm_exec.%d", (int)getpid());
    shm_.grace_ms = 20000;
    r.fetch.worker_init = made_worker_init;
    r.fetch.worker_exit = made_worker_exit;
    expect_all(&r, UINT64_MAX);
    if ((f = fopen(blob_.file, "r")) != NULL) {
        for (int c = fgetc(f); c != EOF; c = fgetc(f)) lines += c == '\n';
        fclose(f);
    }
    remove(blob_.file);
    CHECK(lines == 3);
}

static void exec__environment__not_handed_on(void) {
    rig r;
    exec_rig(&r, 200, 2, 0);
    r.dataset.fetch = shell_fetch;
    expect_all(&r, UINT64_MAX);
    CHECK(getenv("DLPIPE_SHM_SUPERVISOR") == NULL);
}

static void exec__forked_early__starts_later(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    exec_rig(&r, 500, 2, 0);
    CHECK(rig_wire(&r, &p) == DLP_OK);
    CHECK(dlp_pipe_fork(p) == DLP_OK && dlp_pipe_fork(p) == DLP_ERR_STATE);
    CHECK(dlp_pipe_start(p) == DLP_OK);
    CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK && rig_batch_same(&r, b, 0, 0));
    CHECK(inside_consumer_pid(p) == getpid());
    CHECK(dlp_pipe_close(p) == DLP_OK);
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    CHECK(rig_wire(&r, &p) == DLP_OK && dlp_pipe_fork(p) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* start fails, with words that say what to do. */
static void expect_refused(rig *r, int code, const char *stage, const char *field,
                           const char *words) {
    dlp_error e;
    dlp_pipe *p = NULL;
    char text[700];
    int rc = rig_try(r, &p, &e), same;
    CHECK(rc == code);
    if (rc == DLP_OK) {
        dlp_pipe_close(p);
        return;
    }
    same = strcmp(e.stage, stage) == 0 && strcmp(e.field, field) == 0 && strstr(e.message, words);
    CHECK(same);
    dlp_error_format(&e, text, sizeof text);
    if (!same) printf("  said: %s (stage %s, field %s)\n", text, e.stage, e.field);
}

static void exec__callback_without_name__told(void) {
    rig r;
    exec_rig(&r, 100, 2, 0);
    r.n_item_maps = 1;
    r.item_map[0].item = nobodys_item_map;
    r.item_map[0].workers.name = "second";
    expect_refused(&r, DLP_ERR_ARG, "second", "fetch or item", "DLP_SHM_CALLBACK");
    exec_rig(&r, 100, 2, 0);
    r.dataset.fetch = rig_fetch;
    expect_refused(&r, DLP_ERR_ARG, "fetch", "fetch or item", "DLP_SHM_CALLBACK");
    exec_rig(&r, 100, 2, 0);
    r.n_batch_maps = 1;
    r.batch_map[0].batch = rig_batch_map;
    r.batch_map[0].workers.name = "third";
    expect_refused(&r, DLP_ERR_ARG, "third", "batch", "DLP_SHM_CALLBACK");
    exec_rig(&r, 100, 2, 0);
    rig_order(&r, DLP_ORDER_FUNCTION);
    expect_refused(&r, DLP_ERR_ARG, "sampler", "sampler.function", "DLP_SHM_CALLBACK");
    r.fetch.placement = DLP_PLACE_THREADS; /* what runs in the caller needs no name, */
    r.n_item_maps = 1;                     /* but for what replaces an item of a later stage */
    r.item_map[0].workers.on_error = DLP_ON_ERROR_REPLACE;
    expect_refused(&r, DLP_ERR_ARG, "sampler", "sampler.function", "DLP_SHM_CALLBACK");
    r.sampler.function = made_function;
    r.sampler.replacement = nobodys_replacement;
    expect_refused(&r, DLP_ERR_ARG, "sampler", "sampler.replacement", "DLP_SHM_CALLBACK");
}

static void exec__init_fails__told(void) {
    rig r;
    exec_rig(&r, 100, 2, 0);
    blob_.init_fails = 1;
    for (int i = 0; i < 2; i++) { /* in start, or, where that was faster, at the first batch */
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_error e;
        int rc = rig_try(&r, &p, &e);
        if (rc == DLP_OK) {
            rc = dlp_pipe_next_timeout(p, &b, 20000);
            e = *dlp_pipe_error(p);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
        CHECK(rc == DLP_ERR_CALLBACK && strcmp(e.field, "shm.init") == 0);
        CHECK(strcmp(e.stage, "fetch") == 0 && strstr(e.message, i ? "7" : "9") != NULL);
        blob_.init_fails = 0;
        shm_.blob_bytes--;
    }
}

static void exec__blob_that_is_none__refused(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_error e;
    exec_rig(&r, 100, 2, 0);
    shm_.blob = NULL;
    CHECK(dlp_pipe_open(&p, &r.pipe, &e) == DLP_ERR_ARG && strcmp(e.field, "shm.blob") == 0);
    dlp_pipe_close(p);
}

static void exec__names__kept_apart(void) {
    CHECK(dlp_shm_register("made_fetch", (dlp_shm_fn)made_fetch) == DLP_OK);
    CHECK(dlp_shm_register("made_fetch", (dlp_shm_fn)rig_fetch) == DLP_ERR_STATE);
    CHECK(dlp_shm_register("", (dlp_shm_fn)rig_fetch) == DLP_ERR_ARG);
    CHECK(dlp_shm_register(NULL, (dlp_shm_fn)rig_fetch) == DLP_ERR_ARG);
    CHECK(dlp_shm_register("x", NULL) == DLP_ERR_ARG);
}

/* ---- callers of their own ---- */

static char program_[512];

/* Run this program as a case; out: what it is to write to, or -1. */
static pid_t run_case(const char *program, const char *what, int out) {
    pid_t pid;
    fflush(stdout);
    pid = fork();
    if (pid != 0) return pid;
    setsid();
    alarm(50);
    if (out >= 0) dup2(out, 1);
    setenv(CASE_ENV, what, 1);
    execl(program, program, "word", (char *)NULL);
    _exit(99);
}

static void expect_case(const char *program, const char *what) {
    int status = 0;
    pid_t pid = run_case(program, what, -1);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (status != 0) printf("  case %s ended with %x\n", what, (unsigned)status);
    CHECK(shm_session(pid, 0, 1) == 0);
}

static void runs_for_ever(void) {
    rig r;
    dlp_pipe *p;
    dlp_batch *b;
    exec_rig(&r, 1000, 2, 0);
    r.repeat.epochs = DLP_FOREVER;
    r.dataset.fetch = slow_fetch;
    if (rig_open(&r, &p) != DLP_OK) _exit(1);
    for (int n = 0; dlp_pipe_next_timeout(p, &b, 20000) == DLP_OK; n++) {
        dlp_pipe_release(p, b);
        if (n == 2) {
            puts("goes");
            fflush(stdout);
        }
    }
    _exit(1);
}

/* The caller is killed, in the run (after_ms < 0) or so long after it began. Are all gone within a
   second? After 20 they must be. */
static bool caller_killed(int after_ms) {
    int out[2], left = 1;
    pid_t pid;
    char byte = 0;
    uint64_t from;
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    pid = run_case(program_, "runs", out[1]);
    close(out[1]);
    if (after_ms < 0)
        CHECK(read(out[0], &byte, 1) == 1 && byte == 'g');
    else
        test_pause((uint64_t)after_ms * 1000000u);
    kill(pid, SIGKILL);
    from = test_now_ns();
    CHECK(waitpid(pid, NULL, 0) == pid);
    while ((left = shm_session(pid, 0, 0)) > 0 && test_now_ns() - from < UINT64_C(20000000000))
        test_pause(2000000);
    from = test_now_ns() - from;
    CHECK(left == 0);
    if (left) shm_session(pid, 0, 1);
    if (from > 1000000000) printf("  killed after %d ms: %d ms\n", after_ms, (int)(from / 1000000));
    close(out[0]);
    return from <= 1000000000;
}

static void exec__caller_killed__all_gone(int after_ms) { /* others may have the cores */
    int tries = 1;
    while (!caller_killed(after_ms) && tries < 5) tries++;
    CHECK(tries < 5);
}

/* Descriptors 0, 1 and 2 are free: ours take their numbers. */
static void case_closed(void) {
    rig r;
    int keep = fcntl(1, F_DUPFD_CLOEXEC, 50);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    close(0);
    close(1);
    close(2);
    exec_rig(&r, 500, 2, 0);
    expect_all(&r, 5);
    dup2(keep, 1); /* now say what was wrong */
    fflush(stdout);
}

static void case_missing(void) {
    rig r;
    exec_rig(&r, 100, 2, 0);
    expect_refused(&r, DLP_ERR_STATE, "", "shm.start", "dlp_shm_main");
}

/* dlp_shm_main comes behind a pipe: the second run of main is told so by the pipe, the first one by
   start. */
static int case_late(int argc, char **argv) {
    bool second = getenv("DLPIPE_SHM_SUPERVISOR") != NULL;
    dlp_pipe *p;
    rig r;
    exec_rig(&r, 100, 2, 0);
    if (second) {
        dlp_error e;
        int rc = dlp_pipe_open(&p, &r.pipe, &e);
        bool told = rc == DLP_ERR_STATE && strcmp(e.field, "shm.start") == 0 &&
                    strstr(e.message, "dlp_shm_main") != NULL;
        _exit(write(1, told ? "t" : "-", 1) != 1 || told); /* as a program that can't go on */
    }
    shm_.start = DLP_SHM_FORK; /* the first one may do that */
    if (rig_open(&r, &p) == DLP_OK) dlp_pipe_close(p);
    dlp_shm_main(argc, argv);
    exec_rig(&r, 100, 2, 0);
    expect_refused(&r, DLP_ERR_KILLED, "", "", "dlp_shm_main");
    return test_failures != 0;
}

/* A callback that only a part of main registers, behind dlp_shm_main. */
static void case_registered_late(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error e;
    int rc;
    CHECK(dlp_shm_register("late", (dlp_shm_fn)nobodys_item_map) == DLP_OK);
    exec_rig(&r, 100, 2, 0);
    r.n_item_maps = 1;
    r.item_map[0].item = nobodys_item_map;
    rc = rig_try(&r, &p, &e);
    if (rc == DLP_OK) {
        rc = dlp_pipe_next_timeout(p, &b, 20000);
        e = *dlp_pipe_error(p);
        dlp_pipe_close(p);
    }
    CHECK(rc == DLP_ERR_ARG && strstr(e.message, "callback late is not registered") != NULL);
}

static void exec__main_begins_late__told(void) {
    int out[2], status = 0;
    char said[8] = "";
    pid_t pid;
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    pid = run_case(program_, "late", out[1]);
    close(out[1]);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(read(out[0], said, sizeof said) == 1 && said[0] == 't'); /* once, and told */
    close(out[0]);
}

static void exec__program_deleted__runs(void) {
    char copy[64], line[1024];
    snprintf(copy, sizeof copy, "/tmp/shm_exec.copy.%d", (int)getpid());
    snprintf(line, sizeof line, "cp '%s' %s", program_, copy);
    CHECK(system(line) == 0);
    expect_case(copy, "deleted");
    remove(copy);
}

/* A program with more rights than who starts it believes nothing of its environment, which says
   here that it is a supervisor; and can't begin workers by it. */
static void case_setuid(void) {
    rig r;
    CHECK(getauxval(AT_SECURE) != 0 && getenv("HOME") != NULL && inside_env("HOME") == NULL);
    exec_rig(&r, 100, 2, 0);
    expect_refused(&r, DLP_ERR_UNSUPPORTED, "", "shm.start", "setuid");
}

static void exec__setuid__refused(void) {
    char copy[64], line[1024];
    struct statvfs at;
    /* the leak sanitizer of a setuid program cannot look at it */
    if (TEST_SANITIZED || getuid() != 0 || statvfs("/tmp", &at) != 0 ||
        (at.f_flag & ST_NOSUID) != 0)
        return;
    snprintf(copy, sizeof copy, "/tmp/shm_exec.setuid.%d", (int)getpid());
    snprintf(line, sizeof line, "cp '%s' %s && chown 65534 %s && chmod 4755 %s", program_, copy,
             copy, copy);
    CHECK(system(line) == 0);
    setenv("HOME", "/nowhere", 0);
    setenv("DLPIPE_SHM_SUPERVISOR", "3 4 5 6 7 8", 1);
    expect_case(copy, "setuid");
    unsetenv("DLPIPE_SHM_SUPERVISOR");
    remove(copy);
}

static int as_case(const char *what, int argc, char **argv) {
    if (strcmp(what, "late") == 0) return case_late(argc, argv);
    if (strcmp(what, "missing") == 0) {
        case_missing();
        return test_failures != 0;
    }
    dlp_shm_main(argc, argv);
    if (strcmp(what, "runs") == 0)
        runs_for_ever();
    else if (strcmp(what, "closed") == 0)
        case_closed();
    else if (strcmp(what, "setuid") == 0)
        case_setuid();
    else if (strcmp(what, "registered late") == 0)
        case_registered_late();
    else if (strcmp(what, "deleted") == 0) {
        rig r;
        CHECK(unlink(argv[0]) == 0);
        exec_rig(&r, 500, 2, 0);
        expect_all(&r, 5);
    }
    return test_failures != 0;
}

static void all_wirings(void) {
    for (int maps = 0; maps <= RIG_MAPS; maps += getenv("SHORT") ? RIG_MAPS : 1)
        for (int dispatch = 0; dispatch < 2; dispatch++)
            exec__every_stage__same_bytes(maps, maps == 0 ? 4 : 2, dispatch);
    exec__collate__same_bytes(0);
    exec__collate__same_bytes(1);
    exec__orders__same_bytes(DLP_ORDER_SEQUENTIAL);
    exec__orders__same_bytes(DLP_ORDER_REPLACEMENT);
    exec__orders__same_bytes(DLP_ORDER_WEIGHTED);
    exec__orders__same_bytes(DLP_ORDER_FUNCTION);
    exec__subset__its_items();
    exec__affinity__each_its_own();
    exec__mixed_with_threads__same_bytes();
    for (int kind = 0; kind < 4; kind++)
        exec__later_stage_replaces__from_the_order(kind & 1, kind >> 1);
}

int main(int argc, char **argv) {
    const char *what = getenv(CASE_ENV);
    pthread_t thread;
    int over = 0, files;
    if (what) return as_case(what, argc, argv);
    dlp_shm_main(argc, argv);
    SHM_NEEDS("shm_exec");
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(readlink("/proc/self/exe", program_, sizeof program_ - 1) > 0);
    CHECK(pthread_create(&thread, NULL, thread_waits, &over) == 0);
    files = shm_entries("/proc/self/fd");
    all_wirings();
    exec__seek__goes_on_there();
    exec__cache__same_bytes_and_hits();
    exec__worker_killed__replaced();
    exec__worker_init_and_exit__run();
    exec__environment__not_handed_on();
    exec__forked_early__starts_later();
    exec__callback_without_name__told();
    exec__init_fails__told();
    exec__blob_that_is_none__refused();
    exec__names__kept_apart();
    for (int ms = -1; ms < 12; ms += getenv("SHORT") ? 4 : 2) exec__caller_killed__all_gone(ms);
    expect_case(program_, "closed");
    expect_case(program_, "missing");
    exec__main_begins_late__told();
    expect_case(program_, "registered late");
    exec__program_deleted__runs();
    exec__setuid__refused();
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    CHECK(shm_entries("/proc/self/fd") == files && shm_mappings() == 0);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    return test_end("shm_exec");
}
