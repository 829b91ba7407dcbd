/* needs: parts */
/* A worker that dies in the middle of a run of cheap inputs, at every instruction. It is
   single-stepped through one step of its stage; of each state of the region that it leaves on its
   way a process of its own makes its region, recovers the dead worker, and works to the end: at
   once, after the others have done all they can, or with the replacement killed too, at any
   instruction of its step. Then each row is there once, in its place, as a pipe without workers
   wrote it down; no input that was made is made again, inputs and items are counted once. Callbacks
   write garbage first. shm_runs [seed [scene]] */
/* own: hook: inputs come in runs, and the supervisor is the test */
#define DLPIPE_NO_DEBUG /* whole regions are copied here */
#define DLPIPE_IMPLEMENTATION
#define DLPI_INPUT_RUN_NS UINT64_C(8000000000) /* however long inputs take, they come in runs */
#include "../../../dlpipe.h"
#include "../../../dlpipe_shm.h"

#include "../../rig/sanitizers.h"
#include "../../rig/pipe_rig.h"
#include "../../rig/shm_rig.h"
#include "../../rig/inputs_rig.h"
#include <sys/ptrace.h>

enum { INPUTS = 24, BATCH = 4, ROWS = 400 };
enum { TOO_MANY = RIG_ASAN ? 600000 : 60000 }; /* instructions of a step */

/* What some inputs do. POISON: nothing; but one death is all that an input may cost. */
enum { WELL, DROPPED, RAISED, RETRIED, LATER, SKIPPED, POISON };

typedef struct scene {
    int filter, mode;
    int before; /* rounds of all before the victim's step */
    uint32_t streams, window, steps;
    int resume; /* after so many batches */
    int cells;  /* 0: more than there are inputs; else as few as may be, of an input each */
} scene;

static scene now_;
static dlp_pipe *pipe_;
static dlpi_worker *pristine_;
static uint64_t random_;
static const char *wrong_;

static struct common { /* shared by all processes */
    uint32_t phase;
    uint64_t callback; /* 1 + the input that the callback of a life is at; 0: of none */
    int64_t instructions, images, trials, failures, in_runs;
} * common;

static void wrong(const char *what) {
    if (wrong_ == NULL) wrong_ = what;
}

/* ---- callbacks ---- */

static const dlp_field in_fields[1] = {{"base", DLP_U64, 0, {0}, 0, 0}};
static const dlp_field out_fields[1] = {{"v", DLP_U64, 1, {60}, 0, 0}};

static uint64_t here_, *callback_ = &here_; /* a life's is common's */
static int made_[INPUTS]; /* it was made before a death: it is not made again. But behind an error,
                             and in another pass, inputs are asked for again */

static uint64_t base(uint64_t index) { return dlp_hash(index, 3, 0, 0); }
static uint32_t items_of(uint64_t index) { return (uint32_t)(base(index) % 4); }

static uint64_t garbage(void) {
    static uint64_t life;
    if (life == 0) life = (uint64_t)getpid() << 32;
    return ++life * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

/* The callback of an input begins: what it returns, or 0. */
static int begins(const dlp_item *it) {
    if (made_[it->index] && now_.mode != RAISED && !now_.steps)
        wrong("an input that was made is made again");
    if (it->attempt > (it->index % 5 == 2)) wrong("an input has tries of another");
    if (it->index % 5 != 2) return 0;
    if (now_.mode == SKIPPED) return DLP_SKIP;
    if (now_.mode == DROPPED || now_.mode == RAISED) return dlp_fail(it->call, 5, "torn");
    return (now_.mode == RETRIED || now_.mode == LATER) && it->attempt == 0 ? -5 : 0;
}

static int fetch(void *user, dlp_item *it) {
    volatile uint64_t *to = it->data[0];
    int rc;
    (void)user;
    __atomic_store_n(callback_, it->index + 1, __ATOMIC_SEQ_CST);
    *to = garbage();
    if ((rc = begins(it)) == 0) *to = base(it->index);
    if (rc == 0 && now_.filter && base(it->index) % 3) rc = DLP_SKIP;
    __atomic_store_n(callback_, 0u, __ATOMIC_SEQ_CST);
    return rc;
}

static int expand(void *user, dlp_expand *x) {
    uint64_t b = *(const uint64_t *)x->item->data[0];
    (void)user;
    for (uint32_t i = 0; i < items_of(x->item->index); i++) {
        volatile uint64_t *to = dlp_expand_add(x)->data[0];
        to[0] = garbage();
        to[59] = garbage();
        to[0] = b + i;
        to[59] = x->item->index;
    }
    return 0;
}

/* ---- the rig: a pipe with worker processes that nobody supervises ---- */

static int runs_begin(dlp_pipe *p) {
    for (int i = 0; i < p->n_workers; i++) p->workers[i].block->item_ns = 1;
    return DLP_OK;
}
static int runs_look(dlp_pipe *p) { return p == NULL; } /* nobody is missed */
static void runs_nothing(dlp_pipe *p) { (void)p; }

static dlpi_beside_ops table_;

static dlp_pipe *scene_open(int processes, const dlp_state *resume) {
    static dlp_shm_desc shm;
    dlp_pipe *p = NULL;
    dlp_error err;
    rig2 r;
    memset(&r, 0, sizeof r);
    memset(&shm, 0, sizeof shm);
    shm.max_kills = now_.mode == POISON ? 1 : 100;
    r.pipe.resume = resume;
    r.pipe.prefetch_factor = 2;
    r.sampler.seed = 7;
    r.dataset = (dlp_dataset){.n_items = INPUTS,
                              .fields = in_fields,
                              .n_fields = 1,
                              .fetch = fetch,
                              .writes_all_bytes = 1};
    r.expand.max_out = now_.filter ? 0 : 3;
    r.expand.expand = now_.filter ? NULL : expand;
    r.expand.fields = now_.filter ? NULL : out_fields;
    r.expand.n_fields = now_.filter ? 0 : 1;
    r.pipe.streams = now_.streams;
    r.cells = now_.cells ? BATCH + 1 : 0;
    r.window = now_.window;
    r.pipe.steps_per_epoch = now_.steps;
    r.by.retries = now_.mode == RETRIED || now_.mode == LATER || now_.mode == DROPPED;
    r.by.retry_backoff_ms = now_.mode == LATER;
    r.by.on_error = now_.mode == DROPPED || now_.mode == POISON ? DLP_ON_ERROR_DROP : 0;
    r.by.max_skips = 100;
    r.batch.batch_size = BATCH;
    r.by.num_workers = r.fetch.num_workers = processes ? 2 : DLP_NONE;
    if (processes) {
        r.pipe.shm = &shm;
        r.by.placement = r.fetch.placement = DLP_PLACE_PROCESSES;
        table_ = dlpi_shm_table;
        table_.begin = runs_begin;
        table_.look = runs_look;
        table_.nudge = table_.await = runs_nothing;
        dlpi_shm = &table_;
    }
    if (open_pipe(&r, &p, &err) == DLP_OK) return p;
    printf("%s %s: %s\n", err.stage, err.field, err.message);
    return NULL;
}

static dlpi_worker *victim(int i) { return &pipe_->workers[pipe_->source_stage->first_worker + i]; }

/* ---- what comes out, and what must ---- */

typedef struct row2 {
    uint64_t index, v, last;
    int valid;
} row2;

typedef struct rows2 {
    uint32_t n;
    int code; /* after them */
    char message[128];
    row2 row[ROWS];
} rows2;

static rows2 want_, got_;
static uint64_t poison_;     /* the input whose callback ran as its worker died; INPUTS: none */
static uint64_t may_poison_; /* or was about to run, or had run */

static void take(dlp_pipe *p, dlp_batch *b, rows2 *to) {
    const uint64_t *v = b->fields[0].data;
    uint64_t each = now_.filter ? 1 : 60;
    for (uint32_t i = 0; i < b->count && to->n < ROWS; i++)
        to->row[to->n++] = (row2){b->index[i], v[i * each], v[i * each + each - 1], b->valid[i]};
    if (dlp_pipe_release(p, b) != DLP_OK) wrong("release");
}

static void take_end(dlp_pipe *p, int rc, rows2 *to) {
    to->code = rc;
    snprintf(to->message, sizeof to->message, "%.127s", rc < 0 ? dlp_pipe_error(p)->message : "");
}

/* The rows of a pipe without workers; state: after the batch of that number, which is the last. */
static void write_down(const dlp_state *resume, int last, dlp_state *state) {
    dlp_pipe *p = scene_open(0, resume);
    dlp_batch *b;
    int rc, n = 0;
    want_.n = 0;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        if (++n == last) CHECK(dlp_pipe_state(p, b, state) == DLP_OK);
        take(p, b, &want_);
        if (n == last) break;
    }
    take_end(p, rc, &want_);
    CHECK(dlp_pipe_close(p) == DLP_OK && want_.n < ROWS && (want_.n > 5 || now_.mode == RAISED));
}

static int same_row(const row2 *a, const row2 *b) {
    return a->valid == b->valid &&
           (!a->valid || (a->index == b->index && a->v == b->v && a->last == b->last));
}

/* All rows that are wanted; but for those of an input that has killed as many as it may. */
static void compare(void) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < got_.n && poison_ < INPUTS; i++)
        if (got_.row[i].valid && got_.row[i].index == poison_) wrong("what kills is tried again");
    for (uint32_t i = 0; i < want_.n; i++) {
        if (k < got_.n && same_row(&got_.row[k], &want_.row[i])) {
            k++;
            continue;
        }
        if (now_.mode == POISON && want_.row[i].index == may_poison_) continue;
        if (now_.mode == POISON && !want_.row[i].valid) continue; /* others end the last batch */
        wrong("a row is wrong, or missing");
        return;
    }
    while (now_.mode == POISON && k < got_.n && !got_.row[k].valid) k++;
    if (k != got_.n) wrong("too many rows");
    if (got_.code != want_.code) wrong(got_.message[0] ? got_.message : "another code");
    if (strcmp(got_.message, want_.message) != 0) wrong("another error");
}

static void compare_counts(void) {
    const dlpi_found_counts *c = dlpi_found_of(pipe_)->counts;
    uint64_t items = 0, inputs = INPUTS;
    if (now_.mode == RAISED || now_.mode == POISON || now_.steps || now_.resume) return;
    for (uint64_t i = 0; i < INPUTS; i++) {
        int out = i % 5 == 2 && (now_.mode == DROPPED || now_.mode == SKIPPED);
        if (!out) items += now_.filter ? base(i) % 3 == 0 : items_of(i);
    }
    if (c->inputs != inputs) wrong("inputs are not counted once");
    if (c->items != items) wrong("items are not counted once");
}

/* One round of everybody but one; whether anything moved. *rc: what next said. */
static bool one_round(const dlpi_worker *but, int *rc) {
    dlp_pipe *p = pipe_;
    dlp_batch *b;
    bool moved = false;
    uint32_t from = test_pick(&random_, (uint32_t)p->n_workers);
    *rc = dlp_pipe_next_timeout(p, &b, 0);
    if (*rc == DLP_OK) take(p, b, &got_), moved = true;
    for (int i = 0; i < p->n_workers; i++) {
        dlpi_worker *w = &p->workers[(from + (uint32_t)i) % (uint32_t)p->n_workers];
        if (w == but) continue;
        if (w->st->ops->step(w)) moved = true;
        dlpi_clock_stop(w);
    }
    return moved;
}

static void work_to_the_end(void) {
    for (int n = 0, idle = 0; n < 5000 && idle < 50 && wrong_ == NULL; n++) {
        int rc;
        bool moved = one_round(NULL, &rc);
        if (rc != DLP_OK && rc != DLP_TIMEOUT) {
            take_end(pipe_, rc, &got_);
            compare();
            if (rc == DLP_END) compare_counts();
            return;
        }
        idle = moved ? 0 : idle + 1;
        if (!moved && now_.mode == LATER) test_pause(100000);
    }
    wrong("work was lost: nothing moves any more");
}

/* ---- lives that are stepped ---- */

static pid_t life_begin(dlpi_worker *w) {
    int status;
    pid_t pid;
    __atomic_store_n(&common->phase, 0u, __ATOMIC_SEQ_CST);
    pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(78);
        raise(SIGSTOP);
        callback_ = &common->callback;
        __atomic_store_n(&common->phase, 1u, __ATOMIC_SEQ_CST);
        w->st->ops->step(w);
        __atomic_store_n(&common->phase, 2u, __ATOMIC_SEQ_CST);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        printf("shm_runs: unavailable: processes can't be single-stepped here\n");
        exit(78);
    }
    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)0x100000); /* EXITKILL */
    return pid;
}

/* One instruction; false: the step is over. */
static bool life_step(pid_t pid) {
    int status;
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid ||
        !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
        wrong("a worker that was stepped ended");
        return false;
    }
    return __atomic_load_n(&common->phase, __ATOMIC_SEQ_CST) < 2;
}

static void life_approach(pid_t pid) {
    while (__atomic_load_n(&common->phase, __ATOMIC_SEQ_CST) == 0 && life_step(pid)) continue;
}

static void life_kill(pid_t pid) {
    int status;
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == pid && !WIFEXITED(status) && !WIFSIGNALED(status)) continue;
}

/* ---- recovery, and what it must leave ---- */

/* What the dead worker had made of its run, and what it was at. */
static void remember(const dlpi_worker *w) {
    for (uint32_t c = 0; c < dlpi_n_inputs(pipe_); c++) {
        dlpi_input *cell = dlpi_input_at(pipe_, c);
        const uint64_t *one = dlpi_input_indices(cell);
        if (dlpi_gen_low(cell->state) != (uint32_t)w->global + 1u) continue;
        for (uint32_t i = 0; i < cell->made; i++) made_[one[i]] = 1;
        if (cell->made > 0 && cell->made < cell->run)
            __atomic_add_fetch(&common->in_runs, 1, __ATOMIC_RELAXED);
        if (common->callback > 0 && now_.mode == POISON) poison_ = common->callback - 1;
        if (w->block->running != 0) may_poison_ = one[cell->made];
    }
}

static void recover(dlpi_worker *w) {
    static const dlpi_death why = {SIGKILL, false, NULL};
    remember(w);
    dlpi_recover(w, &why);
    for (uint32_t c = 0; c < dlpi_n_inputs(pipe_); c++)
        if (dlpi_input_state(pipe_, c) == (uint32_t)w->global + 1u) wrong("a dead one has a cell");
    *w = pristine_[w->global]; /* a replacement is a fork of what was before it began */
}

/* This process has a region of its own from now on, which its children share. */
static void own_region(const void *image) {
    size_t bytes = (size_t)pipe_->region_bytes;
    if (mmap(pipe_->region, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0) != pipe_->region)
        wrong("mmap");
    memcpy(pipe_->region, image, bytes);
    *pipe_->alive = 1; /* else it is a fork, which may not touch the pipe */
}

enum { AT_ONCE, OTHERS_FIRST, TWICE, WAYS };

/* In a process of its own: w has died. */
_Noreturn static void trial(dlpi_worker *w, int way) {
    static const char *const text[] = {"at once", "others first", "twice"};
    int rc;
    for (int i = 0; way == OTHERS_FIRST && i < 100 && one_round(w, &rc); i++) continue;
    recover(w);
    if (way == TWICE && now_.mode != POISON) {
        pid_t pid = life_begin(w);
        life_approach(pid);
        for (uint32_t k = test_pick(&random_, 3000); k > 0 && life_step(pid); k--) continue;
        life_kill(pid);
        recover(w);
    }
    if (wrong_ == NULL) work_to_the_end();
    if (wrong_ != NULL) printf("  died, %s: %s\n", text[way], wrong_);
    fflush(stdout);
    _exit(wrong_ != NULL);
}

static void try_image(dlpi_worker *w, const void *image, int way, int64_t k) {
    uint64_t dice = test_random(&random_), callback = common->callback;
    int status = 1;
    pid_t pid;
    fflush(stdout);
    if ((pid = fork()) == 0) {
        own_region(image);
        random_ = dice;
        trial(w, way);
    }
    common->trials++;
    if (pid > 0 && waitpid(pid, &status, 0) != pid) status = 1;
    common->callback = callback; /* another life may have written it */
    if (status == 0) return;
    if (common->failures++ < 12)
        printf("  at instruction %d, status %x\n", (int)k, (unsigned)status);
    wrong("a death went wrong");
}

/* Step worker w through its step; try each state of the region that it leaves on its way. */
static void explore(dlpi_worker *w) {
    size_t bytes = (size_t)pipe_->region_bytes;
    uint8_t *image = malloc(bytes);
    uint32_t rarely = getenv("SOAK") ? 1 : getenv("SHORT") ? 16 : 4;
    pid_t pid = life_begin(w);
    bool more = true;
    if (image == NULL) abort();
    life_approach(pid);
    memset(image, 0xff, bytes);
    for (int64_t k = 0; more && wrong_ == NULL; k++, more = life_step(pid)) {
        common->instructions++;
        if (k > TOO_MANY) wrong("a step without end");
        if (memcmp(image, pipe_->region, bytes) == 0) continue;
        memcpy(image, pipe_->region, bytes);
        common->images++;
        for (int way = 0; way < WAYS; way++) {
            uint32_t one_of = way == AT_ONCE ? 1 : way == TWICE ? 4 * rarely : rarely;
            if (wrong_ == NULL && test_pick(&random_, one_of) == 0) try_image(w, image, way, k);
        }
    }
    life_kill(pid);
    free(image);
}

/* ---- scenes ---- */

static const scene scenes[] = {
    {.mode = WELL},
    {.mode = WELL, .filter = 1, .before = 1},
    {.mode = DROPPED},
    {.mode = DROPPED, .before = 1}, /* a run that goes on behind the one that failed */
    {.mode = DROPPED, .before = 2, .filter = 1},
    {.mode = RAISED},
    {.mode = RAISED, .before = 1},
    {.mode = RETRIED},
    {.mode = LATER, .before = 1},
    {.mode = SKIPPED, .filter = 1},
    {.mode = POISON},
    {.mode = WELL, .streams = 2, .window = 5},
    {.mode = DROPPED, .streams = 2, .before = 1, .window = 3},
    {.mode = WELL, .steps = 20, .before = 3},
    {.mode = WELL, .resume = 3},
    {.mode = DROPPED, .resume = 2, .window = 7, .before = 1},
    {.mode = WELL, .filter = 1, .cells = 1, .before = 1},
    {.mode = DROPPED, .cells = 1, .before = 3},
};

static void run_scene(const scene *s) {
    dlp_state state;
    int64_t before = common->failures;
    int rc;
    now_ = *s;
    wrong_ = NULL;
    got_.n = 0;
    poison_ = may_poison_ = INPUTS;
    if (now_.resume) write_down(NULL, now_.resume, &state);
    write_down(now_.resume ? &state : NULL, 0, NULL);
    pipe_ = scene_open(1, now_.resume ? &state : NULL);
    if (pipe_ == NULL) wrong("open");
    pristine_ = malloc((size_t)pipe_->n_workers * sizeof *pristine_);
    if (pristine_ == NULL) abort();
    memcpy(pristine_, pipe_->workers, (size_t)pipe_->n_workers * sizeof *pristine_);
    one_round(victim(0), &rc);
    for (int i = 0; i < now_.before; i++) one_round(NULL, &rc);
    for (int i = 0; i < pipe_->n_workers; i++) dlpi_clock_stop(&pipe_->workers[i]);
    if (wrong_ == NULL) explore(victim(0));
    if (wrong_ != NULL || common->failures != before) {
        printf("scene %d: %s\n", (int)(s - scenes), wrong_);
        common->failures++;
    }
    dlp_pipe_close(pipe_);
    free(pristine_);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, began = test_now_ns();
    size_t n = sizeof scenes / sizeof *scenes, one = argc > 2 ? (size_t)atoi(argv[2]) : n;
    SHM_NEEDS("shm_runs");
    setvbuf(stdout, NULL, _IOLBF, 0);
    common = shm_shared(sizeof *common);
    random_ = seed;
    for (size_t i = 0; i < n; i++)
        if (one == n || one == i) run_scene(&scenes[i]);
    printf("%d instructions stepped, %d states left behind, recovered in %d ways, %d of them "
           "inside a run, %d went wrong, %.1f s\n",
           (int)common->instructions, (int)common->images, (int)common->trials,
           (int)common->in_runs, (int)common->failures, (double)(test_now_ns() - began) / 1e9);
    CHECK(common->failures == 0 && common->in_runs > (one == n ? 300 : 0));
    return test_end("shm_runs");
}
