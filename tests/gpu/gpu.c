/* dlpipe on a machine with a CUDA GPU: each byte that a transfer brings there is compared, and the
   rates of copies are measured. Only the driver is needed, no toolkit. Each case is a process of
   its own, so the worker processes of one never see the driver's threads of another.

     gpu [-q] [-l libcuda.so.1] [case ...]      -q: less of everything */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define DLPIPE_CUDA
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"

#include "gpu_rig.h"
#include "gpu_rates.h"

/* ---- transfer ---- */

/* How a batch goes back. */
enum { PLAIN, AFTER, CONSUMER, RETURNS };

static void give_back(dlp_pipe *p, dlp_batch *b, int how) {
    dlp_error err;
    if (how == AFTER)
        CHECK(dlp_pipe_release_after(p, b, gpu.stream, &err) == DLP_OK);
    else
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
}

/* Double buffering, with a thread that copies or inline, one batch held or three. */
static void transfer(void) {
    kind k = kind_of(784);
    const int batches = quick ? 20 : 157; /* the last one is short */
    gpu_begin();
    for (int i = 0; i < 4 * RETURNS; i++) {
        int held = i & 2 ? 3 : 1, how = i / 4, n_have = 0, n = 0, rc;
        dlp_cuda_desc cuda = {.consumer = how == CONSUMER ? gpu.stream : NULL};
        dlp_device d = device_of(&cuda);
        dlp_loader_desc desc = loader_of(&k, (uint64_t)batches * ROWS - 40, 3);
        dlp_batch *have[4];
        dlp_pipe *p = NULL;
        dlp_error err;
        desc.epochs = 2;
        desc.pipe.max_held = held;
        desc.device = &d, desc.transfer_thread = i & 1;
        opened(dlp_loader_open(&p, &desc, &err), &err);
        pinned_is(&d, 1);
        while ((rc = next(p, &have[n_have])) == DLP_OK) {
            if (n++ % 8 == 0) CHECK(batch_right(have[n_have], &k));
            check_on_device(have[n_have], &k);
            if (how == PLAIN) CU(gpu.call.stream_sync(gpu.stream));
            if (++n_have < held) continue;
            give_back(p, have[0], how);
            memmove(have, have + 1, (size_t)--n_have * sizeof *have);
        }
        while (n_have > 0) give_back(p, have[--n_have], how);
        CHECK(rc == DLP_END && n == 2 * batches && wrong_so_far() == 0);
        ended(p, &d);
    }
}

/* The kernel that counts wrong words does count. */
static void count(void) {
    kind k = kind_of(784), other = kind_of(776);
    dlp_loader_desc desc = loader_of(&k, ROWS, 1);
    dlp_device d;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    gpu_begin();
    d = device_of(NULL);
    desc.device = &d;
    opened(dlp_loader_open(&p, &desc, &err), &err);
    CHECK(next(p, &b) == DLP_OK);
    check_on_device(b, &k);
    CHECK(wrong_so_far() == 0);
    check_on_device(b, &other); /* all rows but the first lie elsewhere */
    CHECK(wrong_so_far() == (ROWS - 1) * other.words[0] && !batch_right(b, &other));
    CHECK(dlp_pipe_release(p, b) == DLP_OK);
    ended(p, &d);
}

/* Items of 1 MiB, with kernels that read them late. */
static void large(void) {
    kind k = kind_of(MIB);
    uint64_t n_items = quick ? 32 : 2048, seen = 0;
    dlp_loader_desc desc = loader_of(&k, n_items, quick ? 2 : 8);
    dlp_device d;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    int rc;
    gpu_begin();
    d = device_of(NULL);
    desc.batch_size = 8;
    desc.epochs = 2;
    desc.device = &d, desc.transfer_thread = 1;
    opened(dlp_loader_open(&p, &desc, &err), &err);
    pinned_is(&d, 1);
    while ((rc = next(p, &b)) == DLP_OK) {
        seen += b->count;
        gpu_spin(20000);
        check_on_device(b, &k);
        give_back(p, b, AFTER);
    }
    CHECK(rc == DLP_END && seen == 2 * n_items && wrong_so_far() == 0);
    explained(p);
    ended(p, &d);
}

/* ---- outs ---- */

typedef struct logger {
    dlp_out *out;
    const kind *k;
    int batches;
    bool right;
} logger;

static void *log_batches(void *user) {
    logger *l = user;
    dlp_batch *b;
    while (dlp_out_next(l->out, &b, -1) == DLP_OK) {
        for (uint32_t f = 0; f < 2; f++) l->right &= field_right(b, l->k, f, b->fields[f].data);
        l->batches++;
        CHECK(dlp_out_release(l->out, b) == DLP_OK);
    }
    dlp_out_close(l->out);
    return NULL;
}

/* The trainer has its batches on the device, and a log has the same ones on the host. */
static void outs(void) {
    kind k = kind_of(784);
    dlp_device d;
    const char *from[] = {"batch", NULL};
    const dlp_node nodes[] = {
        {.name = "items",
         .verb = DLP_LIST,
         .list = {.n_items = (quick ? 2000 : 20000) - 8, .shuffle = 1}},
        {.name = "read",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .user = &k, .fields = k.fields, .n_fields = 2},
         .workers = {.num_workers = 2}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = ROWS}},
        {.name = "gpu",
         .verb = DLP_TRANSFER,
         .transfer = {.device = &d},
         .workers = {.num_workers = 1},
         .queue = {.capacity = 3}},
        {.name = "train", .verb = DLP_OUT},
        {.name = "log", .from = from, .verb = DLP_OUT, .queue = {.capacity = 2}}};
    dlp_pipe_desc desc = {.seed = 3, .epochs = 2};
    logger l = {.k = &k, .right = true};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    pthread_t thread;
    int rc, n = 0;
    gpu_begin();
    d = device_of(NULL);
    opened(dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &err), &err);
    CHECK(dlp_out_find(p, "log", &l.out) == DLP_OK);
    must(pthread_create(&thread, NULL, log_batches, &l), "pthread_create");
    while ((rc = next(p, &b)) == DLP_OK) {
        if (n++ % 16 == 0) CHECK(batch_right(b, &k));
        check_on_device(b, &k);
        give_back(p, b, AFTER);
    }
    CHECK(rc == DLP_END && n == 2 * (quick ? 32 : 313) && wrong_so_far() == 0);
    pthread_join(thread, NULL);
    CHECK(l.right && l.batches == n);
    ended(p, &d);
}

/* ---- chunks ---- */

static int load(void *user, dlp_chunk *c) {
    const kind *k = user;
    for (uint32_t f = 0; f < 2; f++)
        for (uint64_t r = 0; r < c->count; r++)
            write_row((uint64_t *)c->data[f] + r * k->words[f], dlp_chunk_row(c, r), f,
                      k->words[f]);
    return 0;
}

static dlp_chunks_desc chunks_of(kind *k, const dlp_device *d, uint32_t batch_size) {
    return (dlp_chunks_desc){.n_items = (quick ? 8 : 40) * 1024,
                             .fields = k->fields,
                             .n_fields = 2,
                             .writes_all_bytes = 1,
                             .chunk_rows = 1024,
                             .batch_size = batch_size,
                             .shuffle_chunks = 1,
                             .load = load,
                             .user = k,
                             .workers.num_workers = 2,
                             .device = d,
                             .epochs = 2,
                             .seed = 4};
}

/* Chunks on the device, and views of them; batches of 96 rows span chunks. */
static void chunks(void) {
    kind k = kind_of(784);
    gpu_begin();
    for (int i = 0; i < 8; i++) {
        dlp_device d = device_of(NULL);
        dlp_chunks_desc desc = chunks_of(&k, &d, i & 1 ? 96 : 64);
        dlp_pipe *p = NULL;
        dlp_batch *b;
        dlp_stats s;
        dlp_error err;
        uint64_t seen = 0, n = 0;
        int rc;
        desc.transfer_inline = i >> 1 & 1;
        desc.preload = i & 4 ? DLP_PRELOAD_AUTO : DLP_PRELOAD_NONE;
        desc.shuffle_rows = !(i & 4);
        opened(dlp_chunks_open(&p, &desc, &err), &err);
        while ((rc = next(p, &b)) == DLP_OK) {
            if (n++ % 16 == 0) CHECK(batch_right(b, &k));
            check_on_device(b, &k);
            seen += b->count;
            give_back(p, b, AFTER);
        }
        CHECK(rc == DLP_END && seen == 2 * desc.n_items && wrong_so_far() == 0);
        CHECK(dlp_pipe_stats(p, &s) == DLP_OK && (s.chunks.seams > 0) == (i & 1));
        CHECK(s.chunks.preload == (i & 4 ? DLP_PRELOAD_DEVICE : DLP_PRELOAD_NONE));
        ended(p, &d);
    }
}

/* ---- tokens ---- */

static uint16_t token(uint64_t i) { return (uint16_t)(word(7, i) >> 50); }

static void shard_write(const char *path, uint64_t first, uint64_t n) {
    FILE *to = fopen(path, "wb");
    for (uint64_t i = first; to && i < first + n; i++) {
        uint16_t t = token(i);
        if (fwrite(&t, 2, 1, to) != 1) break;
    }
    must(to == NULL || fclose(to) != 0, path);
}

static bool windows_right(const dlp_batch *b, uint64_t per_shard, uint64_t shard_tokens) {
    uint16_t *host = copied_back(&b->fields[0]), *at = host;
    bool right = b->fields[0].bytes == b->count * 1025u * 2;
    for (uint32_t r = 0; r < b->count && right; r++) {
        uint64_t first = b->index[r] / per_shard * shard_tokens + b->index[r] % per_shard * 1024;
        for (uint64_t i = 0; i < 1025; i++) right &= *at++ == token(first + i);
    }
    free(host);
    return right;
}

/* Batches of 64 windows of 1,024 tokens out of two shards. */
static void tokens(void) {
    char dir[] = "/tmp/dlpipe-gpu-XXXXXX", path[2][64];
    const char *paths[2] = {path[0], path[1]};
    const uint64_t per_shard = quick ? 400 : 2000, shard_tokens = per_shard * 1024 + 5;
    dlp_tokens_desc shards = {.paths = paths, .n_paths = 2, .length = 1024, .insist = 1};
    dlp_loader_desc desc = {.batch_size = ROWS, .num_workers = 2, .shuffle = 1, .epochs = 2};
    dlp_source *source = NULL;
    dlp_device d;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    uint64_t seen = 0;
    int rc;
    must(mkdtemp(dir) == NULL, dir);
    for (uint64_t s = 0; s < 2; s++) {
        snprintf(path[s], sizeof path[s], "%s/%d.bin", dir, (int)s);
        shard_write(path[s], s * shard_tokens, shard_tokens);
    }
    opened(dlp_tokens_open(&source, &shards, &err), &err);
    CHECK(unlink(path[0]) == 0 && unlink(path[1]) == 0 && rmdir(dir) == 0);
    gpu_begin();
    d = device_of(NULL);
    desc.source = source;
    desc.device = &d, desc.transfer_thread = 1;
    opened(dlp_loader_open(&p, &desc, &err), &err);
    while ((rc = next(p, &b)) == DLP_OK) {
        CHECK(windows_right(b, per_shard, shard_tokens));
        seen += b->count;
        give_back(p, b, PLAIN);
    }
    CHECK(rc == DLP_END && seen == 2 * 2 * per_shard);
    ended(p, &d);
    CHECK(dlp_source_close(source) == DLP_OK);
}

/* ---- killed ---- */

/* Kill one of the worker processes. */
static void kill_one(dlp_pipe *p, uint64_t draw) {
    dlp_worker_stats s;
    uint32_t n = 0, i = 0;
    while (dlp_pipe_worker_stats(p, n, &s) == DLP_OK) n++;
    for (i = 0; i < n; i++) {
        if (dlp_pipe_worker_stats(p, (uint32_t)((draw + i) % n), &s) != DLP_OK) continue;
        if (s.process == 0 || s.pid <= 0) continue;
        kill(s.pid, SIGKILL);
        return;
    }
}

/* Read to the end while item workers are killed. */
static void killing(dlp_pipe *p, const kind *k, uint64_t batches) {
    uint64_t n = 0, kills = 0, restarts = 0, last = test_now_ns();
    dlp_batch *b;
    dlp_stats s;
    int rc;
    while ((rc = next(p, &b)) == DLP_OK) {
        if (n++ % 16 == 0) CHECK(batch_right(b, k));
        check_on_device(b, k);
        give_back(p, b, AFTER);
        if (test_now_ns() - last < 10000000) continue;
        kill_one(p, word(1, kills++));
        last = test_now_ns();
    }
    CHECK(rc == DLP_END && n == batches && wrong_so_far() == 0);
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    for (uint32_t i = 0; i < s.n_stages; i++) restarts += s.stages[i].restarts;
    printf("killed: %d kills, %d restarts\n", (int)kills, (int)restarts);
    CHECK(kills > (quick ? 0 : 2) && restarts > 0);
}

/* Open a loader's pipe, which forks its workers and starts later. */
static dlp_pipe *opened_later(const dlp_loader_desc *desc) {
    dlp_nodes *n = calloc(1, sizeof *n);
    dlp_pipe *p = NULL;
    dlp_error err;
    must(n == NULL, "calloc");
    opened(dlp_loader_nodes(n, desc, &err), &err);
    n->pipe.later = 1;
    opened(dlp_pipe_open(&p, n->nodes, n->n, &n->pipe, &err), &err);
    free(n);
    return p;
}

/* The pipe forks its worker processes, then CUDA begins, then the pipe starts. */
static void killed(void) {
    dlp_shm_desc shm = {.max_kills = 100};
    kind k[2] = {kind_of(784), kind_of(MIB)};
    uint64_t n[2] = {quick ? 6400 : 32000, quick ? 64 : 1024};
    dlp_cuda_desc cuda[2] = {{.later = 1}, {.later = 1}};
    dlp_device d[2];
    dlp_pipe *p[2];
    for (int i = 0; i < 2; i++) {
        dlp_loader_desc desc = loader_of(&k[i], n[i], 4);
        d[i] = device_of(&cuda[i]);
        k[i].pause_ns = i == 0 ? 50000 : 1000000;
        desc.batch_size = i == 0 ? ROWS : 8;
        desc.workers.placement = DLP_PLACE_PROCESSES;
        desc.device = &d[i], desc.transfer_thread = 1;
        desc.pipe.shm = &shm;
        p[i] = opened_later(&desc);
    }
    gpu_begin();
    for (int i = 0; i < 2; i++) {
        cuda[i].context = gpu.context;
        must(dlp_pipe_start(p[i]), dlp_pipe_error(p[i])->message);
        pinned_is(&d[i], 1);
        killing(p[i], &k[i], n[i] / (i == 0 ? ROWS : 8));
        ended(p[i], &d[i]);
    }
}

/* Worker processes that are forked beside the driver's threads: they never call it. */
static void forked(void) {
    dlp_shm_desc shm = {.max_kills = 100, .allow_fork_with_threads = 1};
    kind k = kind_of(784);
    dlp_loader_desc desc = loader_of(&k, quick ? 6400 : 32000, 4);
    dlp_device d;
    dlp_pipe *p = NULL;
    dlp_error err;
    gpu_begin();
    d = device_of(NULL);
    k.pause_ns = 50000;
    desc.workers.placement = DLP_PLACE_PROCESSES;
    desc.device = &d, desc.transfer_thread = 1;
    desc.pipe.shm = &shm;
    opened(dlp_loader_open(&p, &desc, &err), &err);
    pinned_is(&d, 1);
    killing(p, &k, desc.dataset.n_items / ROWS);
    ended(p, &d);
}

/* ---- resumed ---- */

enum { SAVED = 4 };

static void resumed_from(dlp_pipe *p, const uint64_t *digests, uint64_t from, uint64_t n) {
    dlp_batch *b;
    int rc;
    while ((rc = next(p, &b)) == DLP_OK) {
        CHECK(from < n && digest_of(b) == digests[from]);
        from++;
        give_back(p, b, PLAIN);
    }
    CHECK(rc == DLP_END && from == n);
}

static dlp_pipe *resumed_open(dlp_loader_desc *loader, dlp_chunks_desc *desc,
                              const dlp_state *state) {
    dlp_pipe *p = NULL;
    dlp_error err;
    int rc;
    loader->pipe.resume = desc->pipe.resume = state;
    rc = desc->n_items > 0 ? dlp_chunks_open(&p, desc, &err) : dlp_loader_open(&p, loader, &err);
    opened(rc, &err);
    return p;
}

/* A run from its beginning, and from states at several batches: the same bytes on the device. */
static void resumed(void) {
    kind k = kind_of(784);
    dlp_device d;
    gpu_begin();
    d = device_of(NULL);
    for (int i = 0; i < 3; i++) { /* a loader; views; views of which some are copied */
        dlp_loader_desc loader = loader_of(&k, 6000, 2);
        dlp_chunks_desc views = chunks_of(&k, &d, i == 1 ? 64 : 96);
        uint64_t n = 0, digests[256], at[SAVED];
        dlp_state states[SAVED];
        dlp_batch *b;
        dlp_pipe *p;
        loader.epochs = 2;
        loader.device = &d, loader.transfer_thread = 1;
        views.n_items = i == 0 ? 0 : 6000;
        p = resumed_open(&loader, &views, NULL);
        while (next(p, &b) == DLP_OK && n < 256) {
            for (uint64_t s = 0; s < SAVED; s++)
                if (n == s * 40 + s % 2) { /* 0, 41, 80, 121 */
                    CHECK(dlp_pipe_state(p, b, &states[s]) == DLP_OK);
                    at[s] = n + 1;
                }
            CHECK(batch_right(b, &k));
            digests[n++] = digest_of(b);
            give_back(p, b, PLAIN);
        }
        CHECK(n == (i < 2 ? 188 : 126));
        for (int s = 0; s < SAVED; s++) { /* in the same pipe */
            CHECK(dlp_pipe_seek(p, &states[s], NULL) == DLP_OK);
            resumed_from(p, digests, at[s], n);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
        for (int s = 0; s < SAVED; s++) {
            p = resumed_open(&loader, &views, &states[s]);
            resumed_from(p, digests, at[s], n);
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
    }
    CHECK(dlp_device_close(&d) == DLP_OK);
}

/* ---- the program ---- */

static const struct {
    const char *name;
    void (*one)(void);
} cases[] = {{"transfer", transfer}, {"count", count},     {"large", large},   {"outs", outs},
             {"chunks", chunks},     {"tokens", tokens},   {"killed", killed}, {"forked", forked},
             {"resumed", resumed},   {"overlap", overlap}, {"rates", rates},   {"small", small}};

enum { NO_GPU = 77 };

/* Is there one? The driver is called in a child only: its forks come before. */
static void look(void) {
    dlp_device d;
    dlp_device_info info;
    dlp_error err;
    if (dlp_device_cuda(&d, &(dlp_cuda_desc){.library = library}, &err) != DLP_OK) {
        printf("no GPU: %s\n", err.message);
        exit(err.code == DLP_ERR_UNSUPPORTED ? NO_GPU : 1);
    }
    CHECK(dlp_device_describe(&d, &info) == DLP_OK && dlp_device_close(&d) == DLP_OK);
    printf("%s, %ld cores\n", info.name, sysconf(_SC_NPROCESSORS_ONLN));
}

/* Run one in a process of its own. Returns its exit status. */
static int apart(const char *name, void (*one)(void)) {
    uint64_t begin = test_now_ns();
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        alarm(100);
        one();
        if (one != look)
            printf("%-9s %ld checks, %d failed, %.1f MiB compared, %.1f s\n", name, test_checks,
                   test_failures, (double)gpu.checked / (double)MIB,
                   (double)(test_now_ns() - begin) * 1e-9);
        fflush(stdout);
        _exit(test_failures > 0);
    }
    must(child < 0 || waitpid(child, &status, 0) < 0, "fork");
    if (WIFSIGNALED(status)) printf("%s: died of signal %d\n", name, WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bool wanted(const char *name, int argc, char **argv) {
    bool any = false;
    for (int i = optind; i < argc; i++) any |= strcmp(argv[i], name) == 0;
    return any || optind == argc;
}

int main(int argc, char **argv) {
    int option, rc, failed = 0;
    while ((option = getopt(argc, argv, "ql:")) != -1) {
        if (option == '?') return fputs("usage: gpu [-q] [-l library] [case ...]\n", stderr), 2;
        if (option == 'q') quick = true;
        if (option == 'l') library = optarg;
    }
    if ((rc = apart("look", look)) != 0) return rc == NO_GPU ? 0 : 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (wanted(cases[i].name, argc, argv)) failed += apart(cases[i].name, cases[i].one) != 0;
    printf("gpu: %s\n", failed ? "FAILED" : "all is well");
    return failed > 0;
}
