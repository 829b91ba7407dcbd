#pragma once
#include "open/kinds.h"
#include "build/start.h"
#include "shm/supervisor.h"
#include "shm/platform.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-impl-exec        A SECOND PROGRAM THAT IS THE SAME
   For a process that has threads, or a device, before the pipe starts. The supervisor is this very
   program (/proc/self/exe), begun again: dlp_shm_main finds in the environment that it is one, and
   does not return. What it must know lies in a memory file of its own, which only it is given, not
   in the region, at which others may look: a copy of the pipe's record, whose pointers it replaces
   (callbacks by their registered names), what each stage keeps, the sampler's subset, the blob. It
   has a copy of what a stage keeps, to write to; pointers there are its kind's to replace. */

#define DLPI_EXEC_ENV "DLPIPE_SHM_SUPERVISOR"
#define DLPI_EXEC_MAGIC UINT64_C(0x6365786570696c64)
#define DLPI_NAMES 256

enum {
    DLPI_CB_ITEM,
    DLPI_CB_BATCH,
    DLPI_CB_COLLATE,
    DLPI_CB_INIT,
    DLPI_CB_EXIT,
    DLPI_CB_FUNCTION,
    DLPI_CB_REPLACEMENT,
    DLPI_CB_SUBMIT,
    DLPI_CB_REAP,
    DLPI_CB_OWN,
    DLPI_CB_COUNT
};

typedef struct dlpi_callback {
    char name[64];
    dlp_shm_fn fn;
} dlpi_callback;

/* Registered before main begins, or by it; not changed afterwards. */
static dlpi_callback dlpi_callbacks[DLPI_NAMES];
static int dlpi_n_callbacks;
static const char *dlpi_program; /* argv[0], once dlp_shm_main was called */

/* Bytes behind it: affinity numbers of all stages, what each stage keeps, subset, blob. */
typedef struct dlpi_exec_spec {
    uint64_t magic, layout, pipe_bytes, total_bytes;
    int64_t owner;
    uint64_t self; /* the record's address in the caller */
    uint64_t affinity_at, selves_at, subset_at, blob_at, blob_bytes;
    char init[64];
    char names[DLP_MAX_STAGES][DLPI_CB_COUNT][64];
    dlp_shm_desc desc;
    struct dlp_pipe pipe;
} dlpi_exec_spec;

static dlp_shm_fn dlpi_callback_find(const char *name) {
    for (int i = 0; i < dlpi_n_callbacks; i++)
        if (strcmp(dlpi_callbacks[i].name, name) == 0) return dlpi_callbacks[i].fn;
    return NULL;
}

static const char *dlpi_callback_name(dlp_shm_fn fn) {
    for (int i = 0; i < dlpi_n_callbacks; i++)
        if (dlpi_callbacks[i].fn == fn) return dlpi_callbacks[i].name;
    return NULL;
}

/* Write down the name of a callback; NULL has the name "". */
static int dlpi_callback_note(dlp_pipe *p, const dlpi_stage *st, const char *field, dlp_shm_fn fn,
                              char *name) {
    const char *found = fn ? dlpi_callback_name(fn) : "";
    name[0] = 0;
    if (found != NULL) {
        dlpi_copy_text(name, 64, found);
        return DLP_OK;
    }
    return dlpi_refuse(
        p, DLP_ERR_ARG, st ? st->name : "", field,
        "workers that begin by exec find callbacks by name, and this one has none: say "
        "DLP_SHM_CALLBACK(function) in its file (no two may have the same)");
}

/* Do workers of this stage ask for indices: of their rows, or of what replaces them? */
static bool dlpi_asks_order(const dlp_pipe *p, const dlpi_stage *st) {
    return st->work == 0 || (dlpi_is_item_stage(p, st) && st->w.on_error == DLP_ON_ERROR_REPLACE);
}

static int dlpi_exec_order_names(dlp_pipe *p, dlpi_exec_spec *x) {
    const dlpi_stage *st = p->sampler;
    int rc = dlpi_callback_note(p, st, "sampler.function", (dlp_shm_fn)st->sampler.function,
                                x->names[st->id][DLPI_CB_FUNCTION]);
    if (rc != DLP_OK) return rc;
    return dlpi_callback_note(p, st, "sampler.replacement", (dlp_shm_fn)st->sampler.replacement,
                              x->names[st->id][DLPI_CB_REPLACEMENT]);
}

/* The names of all that runs in worker processes. */
static int dlpi_exec_names(dlp_pipe *p, dlpi_exec_spec *x) {
    int rc = dlpi_callback_note(p, NULL, "shm.init", (dlp_shm_fn)x->desc.init, x->init);
    for (int i = 0; i < p->n_staffed && rc == DLP_OK; i++) {
        const dlpi_stage *st = p->work[i];
        char(*names)[64] = x->names[st->id];
        const dlp_async *async;
        if (st->w.num_workers == 0 || st->w.placement != DLP_PLACE_PROCESSES) continue;
        rc = dlpi_callback_note(p, st, "fetch or item", (dlp_shm_fn)st->item, names[DLPI_CB_ITEM]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "batch", (dlp_shm_fn)st->batch, names[DLPI_CB_BATCH]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "collate", (dlp_shm_fn)st->collate,
                                    names[DLPI_CB_COLLATE]);
        if (rc == DLP_OK) rc = dlpi_callback_note(p, st, st->ops->own, st->own, names[DLPI_CB_OWN]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "worker_init", (dlp_shm_fn)st->w.worker_init,
                                    names[DLPI_CB_INIT]);
        if (rc == DLP_OK)
            rc = dlpi_callback_note(p, st, "worker_exit", (dlp_shm_fn)st->w.worker_exit,
                                    names[DLPI_CB_EXIT]);
        async = dlpi_fetch_async(st);
        if (rc == DLP_OK && async != NULL)
            rc = dlpi_callback_note(p, st, "async.submit", (dlp_shm_fn)async->submit,
                                    names[DLPI_CB_SUBMIT]);
        if (rc == DLP_OK && async != NULL)
            rc = dlpi_callback_note(p, st, "async.reap", (dlp_shm_fn)async->reap,
                                    names[DLPI_CB_REAP]);
        if (rc == DLP_OK && dlpi_asks_order(p, st)) rc = dlpi_exec_order_names(p, x);
    }
    return rc;
}

static uint64_t dlpi_exec_round(uint64_t bytes) { return (bytes + 7) & ~UINT64_C(7); }

static uint64_t dlpi_exec_bytes(const dlp_pipe *p) {
    uint64_t bytes = sizeof(dlpi_exec_spec) + dlpi_shm_of(p)->d.blob_bytes + 64;
    if (p->sampler->sampler.subset) bytes += p->sampler->sampler.n_subset * 8;
    for (int i = 0; i < p->n_stages; i++)
        bytes += (uint64_t)p->stages[i].w.n_affinity * sizeof(int32_t) +
                 dlpi_exec_round(p->stages[i].ops->self_bytes);
    return bytes;
}

static uint64_t dlpi_shm_bytes(const dlp_pipe *p) {
    return p->shm && dlpi_shm_of(p)->d.start == DLP_SHM_EXEC && p->n_procs > 0 ? dlpi_exec_bytes(p)
                                                                               : 0;
}

static void dlpi_exec_put(uint8_t *to, uint64_t *at, const void *from, uint64_t bytes) {
    if (bytes > 0) memcpy(to + *at, from, (size_t)bytes);
    *at += dlpi_exec_round(bytes);
}

/* Fill the memory file. */
static int dlpi_exec_fill(dlp_pipe *p, dlpi_exec_spec *x) {
    const dlpi_shm_state *s = dlpi_shm_of(p);
    const dlp_sampler_desc *d = &p->sampler->sampler;
    uint64_t at = sizeof *x;
    int rc;
    x->magic = DLPI_EXEC_MAGIC;
    x->layout = dlpi_layout_hash();
    x->pipe_bytes = sizeof *p;
    x->total_bytes = dlpi_exec_bytes(p);
    x->owner = getpid();
    x->self = (uint64_t)(uintptr_t)p;
    x->desc = s->d;
    x->pipe = *p;
    if ((rc = dlpi_exec_names(p, x)) != DLP_OK) return rc;
    x->affinity_at = at;
    for (int i = 0; i < p->n_stages; i++)
        dlpi_exec_put((uint8_t *)x, &at, p->stages[i].affinity,
                      (uint64_t)p->stages[i].w.n_affinity * sizeof(int32_t));
    x->selves_at = at;
    for (int i = 0; i < p->n_stages; i++)
        dlpi_exec_put((uint8_t *)x, &at, p->stages[i].self, p->stages[i].ops->self_bytes);
    x->subset_at = at;
    dlpi_exec_put((uint8_t *)x, &at, d->subset, d->subset ? d->n_subset * 8 : 0);
    x->blob_at = at;
    x->blob_bytes = s->d.blob_bytes;
    dlpi_exec_put((uint8_t *)x, &at, s->d.blob, s->d.blob_bytes);
    return DLP_OK;
}

/* Make the memory file. Returns its descriptor, or negative. */
static int dlpi_exec_file(dlp_pipe *p) {
    uint64_t bytes = dlpi_exec_bytes(p);
    int fd = dlpi_fd_above((int)syscall(SYS_memfd_create, "dlpipe-start", 1u)), rc;
    void *at = MAP_FAILED;
    if (fd >= 0 && dlpi_file_may_be(bytes) && ftruncate(fd, (off_t)bytes) == 0)
        at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        rc = dlpi_system_fail(p, DLP_ERR_MEMORY, "mmap of what workers are told");
    } else {
        rc = dlpi_exec_fill(p, at);
        munmap(at, (size_t)bytes);
    }
    if (rc == DLP_OK) return fd;
    dlpi_fd_close(&fd);
    return rc;
}

/* The environment of this process, and one line more. NULL: no memory. */
static char **dlpi_exec_environ(char *line) {
    extern char **environ;
    size_t n = 0;
    char **env;
    while (environ && environ[n]) n++;
    env = malloc((n + 2) * sizeof *env);
    if (env == NULL) return NULL;
    for (size_t i = 0; i < n; i++) env[i] = environ[i];
    env[n] = line;
    env[n + 1] = NULL;
    return env;
}

/* Begin the supervisor. fds: the memory file, the region, caller_fd, nudge[0], alive[1], name. */
static int dlpi_exec_spawn(dlp_pipe *p, const int *fds, int n) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t all, job;
    char line[160], program[256], flag[] = "--dlpipe-supervisor", **env;
    char *argv[] = {program, flag, NULL};
    int rc = 0;
    dlpi_copy_text(program, sizeof program, dlpi_program);
    snprintf(line, sizeof line, DLPI_EXEC_ENV "=%d %d %d %d %d %d", fds[0], fds[1], fds[2], fds[3],
             fds[4], fds[5]);
    env = dlpi_exec_environ(line);
    if (env == NULL) return ENOMEM;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    for (int i = 0; i < n && rc == 0; i++) /* the same number: no longer closed on exec */
        if (fds[i] >= 0) rc = posix_spawn_file_actions_adddup2(&files, fds[i], fds[i]);
    sigfillset(&all);
    dlpi_job_signals(&job); /* they wait until it ignores them */
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &job);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETPGROUP);
    if (rc == 0) rc = posix_spawn(&s->supervisor, "/proc/self/exe", &files, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    free(env);
    return rc;
}

static int dlpi_exec_begin(dlp_pipe *p) {
    dlpi_shm_state *s = dlpi_shm_of(p);
    int fds[6], rc;
    if (dlpi_program == NULL)
        return dlpi_shm_fail(
            p, DLP_ERR_STATE, "shm.start",
            "DLP_SHM_EXEC needs dlp_shm_main(argc, argv) as the first line of main");
    if (getauxval(AT_SECURE) != 0) /* it would not look at its environment: see dlpi_env */
        return dlpi_shm_fail(
            p, DLP_ERR_UNSUPPORTED, "shm.start",
            "a program with more rights than the user who started it (setuid) can't begin "
            "workers by exec");
    fds[0] = dlpi_exec_file(p);
    if (fds[0] < 0) return p->err.code;
    fds[1] = p->memfd;
    fds[2] = s->caller_fd;
    fds[3] = s->nudge[0];
    fds[4] = s->alive[1];
    fds[5] = p->name_fd;
    rc = dlpi_exec_spawn(p, fds, 6);
    close(fds[0]);
    if (rc == 0) return DLP_OK;
    s->supervisor = 0;
    errno = rc;
    return dlpi_system_fail(p, DLP_ERR_SYSTEM, "posix_spawn of the supervisor");
}

/* ---- the other side ---- */

/* A pointer into the caller's record, made one into ours. */
static void *dlpi_exec_moved(dlp_pipe *p, uint64_t self, const void *at) {
    return at == NULL ? NULL : (uint8_t *)p + ((uint64_t)(uintptr_t)at - self);
}

static dlp_shm_fn dlpi_exec_callback(dlp_pipe *p, const dlpi_stage *st, const char *name) {
    dlp_shm_fn fn = name[0] ? dlpi_callback_find(name) : NULL;
    dlp_error e;
    if (fn != NULL || name[0] == 0) return fn;
    dlpi_error_set(&e, DLP_ERR_ARG, "",
                   "callback %s is not registered in the worker processes, "
                   "which run main only up to dlp_shm_main",
                   name);
    dlpi_copy_text(e.stage, sizeof e.stage, st->name);
    dlpi_ctl_fail(p, DLPI_NOBODY, &e);
    return NULL;
}

/* Replace the pointers of stage i. The callbacks' names are looked up when the region is there. */
static void dlpi_exec_stage_point(dlp_pipe *p, int i, const dlpi_exec_spec *x) {
    dlpi_stage *st = &p->stages[i];
    st->ops = dlpi_ops_of(st);
    st->w.name = st->name;
    for (int f = 0; f < DLP_MAX_FIELDS; f++) st->fields[f].name = st->field_names[f];
    if (st->dataset.fields) st->dataset.fields = st->fields;
    if (st->batching.out_fields) st->batching.out_fields = st->fields;
    st->affinity = NULL;
    st->w.affinity = NULL;
    st->sampler.weights = NULL;
    if (st->sampler.subset) {
        const uint8_t *at = (const uint8_t *)x + x->subset_at;
        st->sampler.subset = (const uint64_t *)(const void *)at;
    }
}

static void dlpi_exec_callbacks(dlp_pipe *p, const dlpi_exec_spec *x) {
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        dlp_shm_fn fn[DLPI_CB_COUNT];
        dlp_async *async;
        for (int k = 0; k < DLPI_CB_COUNT; k++) fn[k] = dlpi_exec_callback(p, st, x->names[i][k]);
        st->item = (dlp_item_fn)fn[DLPI_CB_ITEM];
        st->batch = (int (*)(void *, dlp_batch *, void *))fn[DLPI_CB_BATCH];
        st->collate = (dlp_collate_fn)fn[DLPI_CB_COLLATE];
        st->own = fn[DLPI_CB_OWN];
        st->w.worker_init = (int (*)(void *, int, void **))fn[DLPI_CB_INIT];
        st->w.worker_exit = (void (*)(void *, int, void *))fn[DLPI_CB_EXIT];
        st->sampler.function = (uint64_t(*)(void *, uint64_t, uint64_t))fn[DLPI_CB_FUNCTION];
        st->sampler.replacement =
            (uint64_t(*)(void *, uint64_t, uint64_t, uint64_t))fn[DLPI_CB_REPLACEMENT];
        async = dlpi_fetch_async(st);
        if (async == NULL) continue;
        async->submit = (int (*)(void *, void *, dlp_item *))fn[DLPI_CB_SUBMIT];
        async->reap = (int (*)(void *, void *, dlp_item **, int *, int, int))fn[DLPI_CB_REAP];
    }
}

/* What each stage keeps lies behind the record; its table says how much. */
static bool dlpi_exec_selves(dlp_pipe *p, const dlpi_exec_spec *x) {
    const uint8_t *at = (const uint8_t *)x + x->selves_at;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        size_t n = st->ops->self_bytes;
        st->self = NULL;
        if (n == 0) continue;
        if ((st->self = malloc(n)) == NULL) return false;
        memcpy(st->self, at, n);
        at += dlpi_exec_round(n);
    }
    return true;
}

/* A pipe's record of this process's own, from that of the caller. */
static dlp_pipe *dlpi_exec_pipe(const dlpi_exec_spec *x, int memfd, int name_fd) {
    dlp_pipe *p = malloc(sizeof *p);
    if (p == NULL) return NULL;
    *p = x->pipe;
    p->d.resume = NULL;
    p->d.budget = NULL;
    p->d.log = NULL;
    p->d.shm = NULL;
    p->d.name = p->name;
    p->budget_bytes = 0;
    p->alive = NULL;
    p->memfd = memfd;
    p->name_fd = name_fd;
    p->sampler = dlpi_exec_moved(p, x->self, p->sampler);
    p->repeat = dlpi_exec_moved(p, x->self, p->repeat);
    p->fetch = dlpi_exec_moved(p, x->self, p->fetch);
    p->batcher = dlpi_exec_moved(p, x->self, p->batcher);
    p->sink = dlpi_exec_moved(p, x->self, p->sink);
    p->keeper = dlpi_exec_moved(p, x->self, p->keeper);
    p->lender = dlpi_exec_moved(p, x->self, p->lender);
    p->beside = &dlpi_alone; /* its processes are the caller's */
    p->sharing = NULL;       /* for who schedules, which is the caller */
    p->stay = NULL;          /* of batches loaded by a fetch that has no name */
    p->source_stage = dlpi_exec_moved(p, x->self, p->source_stage);
    p->rows_end = dlpi_exec_moved(p, x->self, p->rows_end);
    p->cell_end = dlpi_exec_moved(p, x->self, p->cell_end);
    for (int i = 0; i < p->n_staffed; i++) p->work[i] = dlpi_exec_moved(p, x->self, p->work[i]);
    for (int i = 0; i < p->n_stages; i++) dlpi_exec_stage_point(p, i, x);
    p->source = p->source_stage->ops->source;
    for (uint32_t f = 0; f < p->items.n; f++) p->items.at[f].f.name = p->items.at[f].name;
    for (uint32_t f = 0; f < p->batches.n; f++) p->batches.at[f].f.name = p->batches.at[f].name;
    return p;
}

/* CPU numbers lie behind the record. */
static int dlpi_exec_affinity(dlp_pipe *p, const dlpi_exec_spec *x) {
    const uint8_t *at = (const uint8_t *)x + x->affinity_at;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        size_t n = (size_t)st->w.n_affinity * sizeof(int32_t);
        if (n == 0) continue;
        if ((st->affinity = malloc(n)) == NULL) return DLP_ERR_MEMORY;
        memcpy(st->affinity, at, n);
        at += (n + 7) & ~(size_t)7;
    }
    return DLP_OK;
}

/* In a worker process that began by exec: what the callbacks get as user. */
static int dlpi_exec_user(dlp_pipe *p, dlpi_worker *w) {
    const dlpi_exec_spec *x = dlpi_shm_of(p)->spec;
    dlp_shm_init_fn init = (dlp_shm_init_fn)dlpi_exec_callback(p, w->st, x->init);
    void *user = NULL;
    int rc = init ? init((const uint8_t *)x + x->blob_at, x->blob_bytes, &user) : 0;
    dlp_error e;
    for (int i = 0; i < p->n_stages; i++) {
        dlpi_stage *st = &p->stages[i];
        st->user = st->w.worker_user = st->sampler.function_user = st->dataset.user = user;
    }
    dlpi_worker_init(p, w->st, w->id, w->global);
    if (rc == 0) return DLP_OK;
    dlpi_error_set(&e, DLP_ERR_CALLBACK, "shm.init", "init returned %d", rc);
    dlpi_copy_text(e.stage, sizeof e.stage, w->st->name);
    e.worker = w->id;
    dlpi_ctl_fail(p, (uint32_t)w->global, &e);
    return DLP_ERR_CALLBACK;
}

/* What the caller wrote down; NULL: it is not from this program. */
static const dlpi_exec_spec *dlpi_exec_map(int fd) {
    struct stat st;
    const dlpi_exec_spec *x;
    void *at;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof *x) return NULL;
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return NULL;
    x = at;
    if (x->magic != DLPI_EXEC_MAGIC || x->layout != dlpi_layout_hash() ||
        x->pipe_bytes != sizeof(struct dlp_pipe) || x->total_bytes != (uint64_t)st.st_size)
        return NULL;
    return x;
}

static bool dlpi_exec_region(dlp_pipe *p) {
    void *at = mmap(NULL, (size_t)p->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->memfd, 0);
    if (at == MAP_FAILED) return false;
    p->region = at;
    return dlpi_private_alloc(p) == DLP_OK;
}

/* Become the supervisor. fds: as dlpi_exec_spawn gives them. */
_Noreturn static void dlpi_exec_supervisor(const int *fds) {
    const dlpi_exec_spec *x = dlpi_exec_map(fds[0]);
    dlp_pipe *p = x ? dlpi_exec_pipe(x, fds[1], fds[5]) : NULL;
    dlpi_shm_state *s = calloc(1, sizeof *s);
    for (int i = 0; i < 6; i++)
        if (fds[i] >= 0) fcntl(fds[i], F_SETFD, FD_CLOEXEC);
    if (p == NULL || s == NULL || !dlpi_exec_selves(p, x) || !dlpi_exec_region(p)) _exit(3);
    close(fds[0]);
    s->d = x->desc;
    s->spec = x;
    s->begin = dlpi_exec_user;
    s->owner = (pid_t)x->owner;
    s->caller_fd = fds[2];
    s->nudge[0] = fds[3];
    s->alive[1] = fds[4];
    s->nudge[1] = s->alive[0] = s->supervisor_fd = -1;
    p->shm = s;
    dlpi_live_point(p);
    dlpi_live_workers(p);
    dlpi_exec_callbacks(p, x);
    if (dlpi_exec_affinity(p, x) != DLP_OK || dlpi_procs_alloc(p) != DLP_OK) _exit(3);
    dlpi_supervisor(p);
}
