/* needs: parts cache split */
/* The memory plan: known before the start, what is then used, what is in flight, and what limits
   it. */
#include "../../rig/pipe_loaders.h"

enum { PLAIN, HELD, COLLATE, TRANSFER, IN_TURN, RAGGED, BATCHES, TABLE, ALL, KINDS };

static uint64_t weights[1000];
static int64_t some_next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    uint64_t *next = user;
    (void)epoch;
    if (*next >= 1000) return (int64_t)(*next = 0);
    for (uint64_t i = 0; i < max; i++) index[i] = (*next)++;
    return (int64_t)max;
}
static int all_fetch(void *user, dlp_item *it) {
    (void)user;
    for (uint32_t f = 0; f < it->n_fields; f++) memcpy(it->data[f], &it->index, 8);
    if (it->n_fields > 1) it->length[1] = 1 + it->index % 5;
    return 0;
}

static uint64_t list_at;

static void plan_rig(rig *r, int kind, int workers) {
    rig_default(r);
    r->dataset.n_items = 1000;
    r->dataset.fetch = all_fetch;
    r->pipe.epochs = 2;
    r->fetch.workers.num_workers = workers;
    if (kind == HELD || kind == ALL) {
        r->pipe.prefetch_factor = 5;
        r->pipe.max_held = 3;
    }
    if (kind == COLLATE || kind == RAGGED || kind == ALL) r->batch.collate = dlp_collate_pad;
    if (kind == TRANSFER || kind == ALL) {
        r->has_transfer = 1;
        r->transfer.transfer.device = dlp_device_host();
        r->transfer.workers.num_workers = workers > 1;
    }
    if (kind == IN_TURN || kind == ALL) r->fetch.workers.dispatch = DLP_DISPATCH_BATCHES;
    if (kind == RAGGED || kind == ALL) {
        r->dataset.n_fields = 2;
        r->fields[1] = r->fields[0];
        r->fields[1].name = "ragged";
        r->fields[1].shape[0] = 7;
        r->fields[1].ragged = 1;
    }
    if (kind == BATCHES) {
        list_at = 0;
        r->sampler.order = DLP_ORDER_BATCHES;
        r->sampler.batches.next = some_next;
        r->sampler.batches.user = &list_at;
    }
    if (kind == TABLE || kind == ALL) {
        for (int i = 0; i < 1000; i++) weights[i] = 1 + (uint64_t)i;
        r->sampler.order = DLP_ORDER_WEIGHTED;
        r->sampler.weights = weights;
        r->sampler.threaded = workers > 1;
    }
}

static uint64_t plan_sum(const dlp_plan *plan) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan->n_lines; i++) {
        const dlp_plan_line *l = &plan->lines[i];
        CHECK(l->what[0] != 0 && l->count > 0 && l->bytes_each > 0 &&
              l->bytes == l->count * l->bytes_each);
        sum += l->bytes;
    }
    return sum;
}

/* Same before, after and at the end; the sum of its lines; what is asked of the system, and no
   more. */
/* The last line tells what this process may use. */
static void check_system(const char *text) {
    const char *at = strstr(text, "\nsystem: Linux, CPUs allowed: ");
    unsigned long long bytes = 0;
    int cpus = 0;
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0 && at != NULL);
    if (at == NULL) return;
    CHECK(sscanf(at, "\nsystem: Linux, CPUs allowed: %d,", &cpus) == 1);
    CHECK(cpus >= 1 && cpus <= CPU_COUNT(&set));
    CHECK(strstr(at, ", no limit of memory known\n") != NULL ||
          (sscanf(strstr(at, ", "), ", CPUs allowed: %d, limit of memory: %llu bytes", &cpus,
                  &bytes) == 2 &&
           bytes > 0));
}

/* From the consumer round to the consumer, each stage between by its name; in the text, too. */
static void check_links(const dlp_plan *plan) {
    char text[8192], words[128];
    const dlp_link *l = plan->links;
    uint64_t bytes = 0;
    uint32_t chain = 0;
    int32_t at = -1;
    CHECK(plan->n_links >= 3 && plan->n_links <= DLP_MAX_LINKS);
    CHECK(l[0].kind == DLP_LINK_SPSC && l[0].from_stage == -1 && l[0].capacity == plan->slots);
    CHECK(dlp_plan_format(plan, text, sizeof text) == (int)strlen(text));
    check_system(text);
    for (uint32_t i = 0; i < plan->n_links; i++) {
        snprintf(words, sizeof words, "\nlink %s -> %s ", l[i].from, l[i].to);
        CHECK(strstr(text, words) != NULL && strstr(text, dlp_link_name(l[i].kind)) != NULL);
        CHECK(l[i].writers >= 1 && l[i].readers >= 1 && l[i].capacity > 0 && l[i].bytes > 0);
        CHECK((l[i].from_stage < 0) == (strcmp(l[i].from, "consumer") == 0));
        CHECK(l[i].depth == 0 && (l[i].kind != DLP_LINK_SPSC || l[i].writers == 1));
        CHECK(l[i].kind != DLP_LINK_GATHER || l[i].readers == 1);
        bytes += l[i].bytes;
        if (l[i].from_stage != at || (chain > 1 && at == -1)) continue;
        at = l[i].to_stage;
        chain++;
    }
    CHECK(at == -1 && chain >= 3); /* the chain is closed */
    CHECK(bytes < plan->total_bytes);
    CHECK(strcmp(dlp_link_name(0), "?") == 0 && strcmp(dlp_link_name(5), "?") == 0);
}

static void plan__before_and_after_start__same_and_all_there_is(void) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int workers = 0; workers <= 4; workers += 2) {
            rig r;
            dlp_pipe *p = NULL;
            dlp_plan before, again, after;
            dlp_stats stats;
            uint64_t batches;
            long from = seam_read(&seam.bytes), at_start, asked;
            char text[8192], sum[64];
            plan_rig(&r, kind, workers);
            CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
            at_start = seam_read(&seam.bytes);
            CHECK(dlp_pipe_plan(p, &before) == DLP_OK && dlp_pipe_plan(p, &again) == DLP_OK);
            CHECK(seam_read(&seam.bytes) == at_start); /* planning allocates nothing */
            CHECK(memcmp(&before, &again, sizeof before) == 0);
            CHECK(plan_sum(&before) == before.total_bytes);
            check_links(&before);
            CHECK(before.slots == (kind == HELD || kind == ALL ? 8u : workers == 0 ? 2u : 3u));
            CHECK(dlp_pipe_start(p) == DLP_OK);
            asked = seam_read(&seam.bytes) - from;
            if (!(CHECK((uint64_t)asked <= before.total_bytes) &
                  CHECK(before.total_bytes < (uint64_t)asked + 64)))
                printf("  kind %d, %d workers: planned %" PRIu64 ", asked for %ld\n", kind, workers,
                       before.total_bytes, asked);
            CHECK(rig_drain(p, &batches) == DLP_END && batches == 200);
            CHECK(dlp_pipe_plan(p, &after) == DLP_OK &&
                  memcmp(&before, &after, sizeof before) == 0);
            CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && stats.plan_bytes == before.total_bytes);
            CHECK(seam_read(&seam.bytes) - from ==
                  asked); /* nothing was allocated after the start */
            CHECK(dlp_plan_format(&before, text, sizeof text) == (int)strlen(text));
            snprintf(sum, sizeof sum, " %" PRIu64 " bytes", before.total_bytes);
            CHECK(strstr(text, "total") != NULL && strstr(text, sum) != NULL);
            CHECK(dlp_plan_format(&before, NULL, 0) == (int)strlen(text));
            CHECK(dlp_pipe_close(p) == DLP_OK);
        }
}

/* The same of each make of loader. */
static void plan__of_any_loader__all_there_is(void) {
    for (int kind = 0; kind < LIFE_KINDS; kind++) {
        dlp_pipe *p = NULL;
        dlp_plan plan;
        dlp_stats stats;
        dlp_error e;
        uint64_t batches;
        long from = seam_read(&seam.bytes), asked;
        int rc = life_open(kind, &p, &e);
        if (!CHECK(rc == DLP_OK)) printf("  kind %d: %s\n", kind, e.message);
        if (rc != DLP_OK) continue;
        asked = seam_read(&seam.bytes) - from;
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && plan_sum(&plan) == plan.total_bytes);
        if (!(CHECK((uint64_t)asked <= plan.total_bytes) &
              CHECK(plan.total_bytes < (uint64_t)asked + 64)))
            printf("  kind %d: planned %" PRIu64 ", asked for %ld\n", kind, plan.total_bytes,
                   asked);
        CHECK(rig_drain(p, &batches) == DLP_END && batches == 10);
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && stats.plan_bytes == plan.total_bytes);
        CHECK(seam_read(&seam.bytes) - from == asked);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- what the kernel says is used ---- */

static uint64_t resident(void) {
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %" SCNu64, &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

static int fill_fetch(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 1, 1 << 20);
    return 0;
}

static void run__every_slot_touched__not_above_plan(void) {
    for (int collate = 0; collate < 2; collate++) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_plan plan;
        dlp_batch *b = NULL;
        uint64_t before, used = 0, fields;
        int rc;
        plan_rig(&r, HELD, 2);
        r.dataset.n_items = 64;
        r.dataset.fetch = fill_fetch;
        r.dataset.writes_all_bytes = 1;
        r.fields[0].dtype = DLP_U8;
        r.fields[0].shape[0] = 1 << 20;
        r.batch.batch_size = 2;
        if (collate) r.batch.collate = dlp_collate_pad;
        before = resident();
        if (before == 0) return; /* this kernel does not say */
        CHECK(rig_start(&r, &p) == DLP_OK);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        fields = plan.slots * plan.slot_bytes;
        while ((rc = dlp_pipe_next_timeout(p, &b, 20000)) == DLP_OK) {
            uint64_t now = resident();
            used = now - before > used ? now - before : used;
            CHECK(dlp_pipe_release(p, b) == DLP_OK);
        }
        CHECK(rc == DLP_END);
        if (!(CHECK(used <= plan.total_bytes + (1 << 20)) & CHECK(used >= fields / 2)))
            printf("  planned %" PRIu64 ", used %" PRIu64 "\n", plan.total_bytes, used);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- what is in flight ---- */

#define BATCHES_MAX 400
static struct {
    uint8_t begun[BATCHES_MAX];
    uint32_t now, peak; /* begun and not delivered */
    uint32_t item_us;
} in_flight;

static int in_flight_fetch(void *user, dlp_item *it) {
    uint64_t batch = it->position / 10;
    uint8_t none = 0;
    (void)user;
    if (batch < BATCHES_MAX &&
        DLPI_CAS_SEQ(&in_flight.begun[batch], &none, 1)) { /* F1 once for each batch */
        uint32_t n = DLPI_ADD_SEQ(&in_flight.now, 1u) + 1,
                 most = DLPI_LOAD_SEQ(&in_flight.peak); /* F1 */
        while (n > most && n < BATCHES_MAX && !DLPI_CAS_SEQ(&in_flight.peak, &most, n))
            continue; /* F1 */
    }
    if (in_flight.item_us && it->index % 7 == 0) sleep_us(in_flight.item_us);
    return rig_fetch(NULL, it);
}

static void await_peak(uint32_t least) {
    for (int i = 0; i < 20000 && DLPI_LOAD_SEQ(&in_flight.peak) < least; i++)
        sleep_us(1000); /* F1 */
}

/* The caller counts a batch as delivered after next returns, one later than the pipe: so one
   more. */
static void run__any_wiring__in_flight_within_prefetch_factor(void) {
    static const int workers[] = {0, 1, 3, 16};
    for (int unordered = 0; unordered < 2; unordered++)
        for (int w = 0; w < 4; w++)
            for (int prefetch = 1; prefetch <= 16; prefetch *= 4) {
                rig r;
                dlp_pipe *p = NULL;
                dlp_batch *b[3];
                dlp_stats stats;
                uint64_t n = 0;
                int rc = DLP_OK, held = 0;
                memset(&in_flight, 0, sizeof in_flight);
                in_flight.item_us = 100;
                rig_default(&r);
                r.dataset.n_items = 1200;
                r.dataset.fetch = in_flight_fetch;
                r.pipe.prefetch_factor = prefetch;
                r.pipe.max_held = 3;
                r.pipe.unordered = unordered;
                r.sampler.threaded = w == 2;
                r.fetch.workers.num_workers = workers[w];
                CHECK(rig_start(&r, &p) == DLP_OK);
                CHECK(dlp_pipe_stats(p, &stats) == DLP_OK && stats.slots == (uint32_t)prefetch + 3);
                while (rc == DLP_OK) {
                    while (held < 3 && (rc = dlp_pipe_next_timeout(p, &b[held], 20000)) == DLP_OK) {
                        held++;
                        DLPI_ADD_SEQ(&in_flight.now, UINT32_MAX); /* F1 one less */
                        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK &&
                              stats.in_flight <= (uint32_t)prefetch);
                        CHECK(stats.held == (uint32_t)held);
                        if (++n % 8 == 0) sleep_us(2000);
                        if (n == 8 && workers[w] > 0) await_peak((uint32_t)prefetch / 2);
                    }
                    while (held > 0) CHECK(dlp_pipe_release(p, b[--held]) == DLP_OK);
                }
                CHECK(rc == DLP_END && n == 120);
                if (!(CHECK(in_flight.peak <= (uint32_t)prefetch + 1) &
                      CHECK(workers[w] == 0 || in_flight.peak >= (uint32_t)prefetch / 2)))
                    printf("  peak %u of %d, %d workers\n", in_flight.peak, prefetch, workers[w]);
                CHECK(dlp_pipe_close(p) == DLP_OK);
            }
}

/* ---- several pipes ---- */

static void run__pipes_under_one_budget__sum_is_used(void) {
    dlp_budget budget;
    dlp_pipe *p[4];
    uint64_t sum = 0, done = 0;
    rig r[4];
    memset(&budget, 0, sizeof budget);
    budget.limit_bytes = 64 << 20;
    for (int i = 0; i < 4; i++) {
        dlp_plan plan;
        plan_rig(&r[i], i, i);
        r[i].pipe.budget = &budget;
        CHECK(rig_start(&r[i], &p[i]) == DLP_OK);
        CHECK(dlp_pipe_plan(p[i], &plan) == DLP_OK);
        sum += plan.total_bytes;
        CHECK(budget.used_bytes == sum);
    }
    for (int going = 4; going > 0;)
        for (int i = going = 0; i < 4; i++) {
            dlp_batch *b;
            if (dlp_pipe_next_timeout(p[i], &b, 20000) != DLP_OK) continue;
            done++;
            going++;
            dlp_pipe_release(p[i], b);
        }
    CHECK(done == 4 * 200 && budget.used_bytes == sum);
    for (int i = 0; i < 4; i++) CHECK(dlp_pipe_close(p[i]) == DLP_OK);
    CHECK(budget.used_bytes == 0);
}

/* ---- what the system leaves ---- */

static char fake_dir[64];
static const char *fake_path(const char *path) {
    static char text[700];
    if (strncmp(path, "/sys/fs/cgroup", 14) != 0 && strncmp(path, "/proc/", 6) != 0) return path;
    snprintf(text, sizeof text, "%s/", fake_dir);
    for (size_t n = strlen(text); *path && n + 1 < sizeof text; path++, n++) {
        text[n] = *path == '/' ? '_' : *path;
        text[n + 1] = 0;
    }
    return text;
}
__attribute__((format(printf, 2, 3))) static void fake(const char *path, const char *format, ...) {
    va_list args;
    FILE *f = (fopen)(fake_path(path), "w");
    va_start(args, format);
    CHECK(f != NULL);
    if (f) vfprintf(f, format, args);
    va_end(args);
    if (f) (fclose)(f);
}
static void fake_gone(const char *path) { unlink(fake_path(path)); }

static uint64_t need;
static int fake_start(const char *words) {
    rig r;
    dlp_pipe *p = NULL;
    char sum[32];
    int rc;
    plan_rig(&r, PLAIN, 1);
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    rc = dlp_pipe_start(p);
    snprintf(sum, sizeof sum, "%" PRIu64, need);
    if (rc != DLP_OK) {
        CHECK(rc == DLP_ERR_LIMIT && strstr(dlp_pipe_error(p)->message, sum) != NULL);
        if (!CHECK(strstr(dlp_pipe_error(p)->message, words) != NULL))
            printf("  %s\n", dlp_pipe_error(p)->message);
    }
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return rc;
}

#define CG "/sys/fs/cgroup"

static int no_chunk(void *user, dlp_chunk *c) {
    (void)user;
    (void)c;
    return 0;
}

/* What DLP_PRELOAD_AUTO chooses of 16 chunks of 64 KiB; *bytes: its plan. */
static int fake_preload(int preload, uint64_t *bytes) {
    static const dlp_field field = {"x", DLP_U8, 1, {1024}, 0, 0};
    dlp_chunks_desc d = {.n_items = 1024,
                         .fields = &field,
                         .n_fields = 1,
                         .chunk_rows = 64,
                         .batch_size = 16,
                         .load = no_chunk,
                         .preload = preload};
    dlp_pipe *p = NULL;
    dlp_stats s;
    if (!CHECK(dlp_chunks_open(&p, &d, NULL) == DLP_OK)) return -1;
    CHECK(dlp_pipe_stats(p, &s) == DLP_OK);
    if (bytes) *bytes = s.plan_bytes;
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return s.chunks.preload;
}

/* AUTO takes three quarters of what is left, and not a byte more. */
static void preload__auto__what_the_system_leaves(void) {
    uint64_t bytes = 0;
    CHECK(fake_preload(DLP_PRELOAD_CPU, &bytes) == DLP_PRELOAD_CPU && bytes > 16 * 65536);
    bytes = (bytes + 2) / 3 * 4;
    CHECK(fake_preload(DLP_PRELOAD_AUTO, NULL) == DLP_PRELOAD_CPU); /* nothing is known */
    fake(CG "/memory.max", "%" PRIu64 "\n", bytes);
    fake(CG "/memory.current", "0\n");
    CHECK(fake_preload(DLP_PRELOAD_AUTO, NULL) == DLP_PRELOAD_CPU);
    fake(CG "/memory.current", "8\n");
    CHECK(fake_preload(DLP_PRELOAD_AUTO, NULL) == DLP_PRELOAD_NONE);
    fake(CG "/memory.max", "max\n");
    CHECK(fake_preload(DLP_PRELOAD_AUTO, NULL) == DLP_PRELOAD_CPU);
    fake("/proc/meminfo", "MemAvailable:   %" PRIu64 " kB\n", bytes / 1024 + 1);
    CHECK(fake_preload(DLP_PRELOAD_AUTO, NULL) == DLP_PRELOAD_CPU);
    fake("/proc/meminfo", "MemAvailable:   %" PRIu64 " kB\n", bytes / 1024 - 1);
    CHECK(fake_preload(DLP_PRELOAD_AUTO, NULL) == DLP_PRELOAD_NONE);
    fake_gone("/proc/meminfo");
}

static void start__memory_of_cgroup_and_machine__limits(void) {
    rig r;
    dlp_pipe *p = NULL;
    dlp_plan plan;
    plan_rig(&r, PLAIN, 1);
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && dlp_pipe_close(p) == DLP_OK);
    need = plan.total_bytes;
    snprintf(fake_dir, sizeof fake_dir, "/tmp/pipe_plan.XXXXXX");
    if (!CHECK(mkdtemp(fake_dir) != NULL)) return;
    seam_path = fake_path;
    CHECK(fake_start("") == DLP_OK); /* no file at all */
    fake(CG "/memory.max", "%" PRIu64 "\n", need + 1000);
    CHECK(fake_start("") == DLP_OK); /* nothing says what is used */
    fake(CG "/memory.current", "1000\n");
    CHECK(fake_start("") == DLP_OK); /* exactly enough */
    fake(CG "/memory.current", "1001\n");
    CHECK(fake_start("cgroup") == DLP_ERR_LIMIT);
    fake(CG "/memory.current", "%" PRIu64 "\n", need + 5000);
    CHECK(fake_start("cgroup") == DLP_ERR_LIMIT); /* above its limit already */
    fake(CG "/memory.stat", "anon 5\nfile 9\ninactive_file %" PRIu64 "\nactive_file 4000\n", need);
    CHECK(fake_start("") == DLP_OK); /* most of it is cache */
    fake(CG "/memory.stat", "inactive_file 18446744073709551614\nactive_file 9\n");
    CHECK(fake_start("") == DLP_OK);
    fake_gone(CG "/memory.stat");
    fake(CG "/memory.max", "max\n");
    CHECK(fake_start("") == DLP_OK);
    fake(CG "/memory.max", "%s", "");
    CHECK(fake_start("") == DLP_OK);
    fake("/proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
    fake(CG "/a/b/memory.max", "max\n");
    fake(CG "/a/memory.max", "%" PRIu64 "\n", need);
    fake(CG "/a/memory.current", "1\n");
    CHECK(fake_start("cgroup") == DLP_ERR_LIMIT); /* the parent's */
    fake(CG "/a/memory.current", "0\n");
    CHECK(fake_start("") == DLP_OK);
    fake("/proc/meminfo", "MemTotal: 9999999999 kB\nMemAvailable:   %" PRIu64 " kB\n", need / 1024);
    CHECK(fake_start("") == DLP_OK);
    fake("/proc/meminfo", "MemTotal: 9999999999 kB\nMemAvailable:   %" PRIu64 " kB\n",
         need / 1024 - 1);
    CHECK(fake_start("available") == DLP_ERR_LIMIT);
    fake("/proc/meminfo", "MemAvailable: many\n");
    CHECK(fake_start("") == DLP_OK);
    fake_gone("/proc/meminfo");
    fake("/proc/self/cgroup", "5:cpu,memory:/x\n4:memory:/c/d\n0::/\n"); /* version 1 */
    fake(CG "/memory/c/memory.limit_in_bytes", "%" PRIu64 "\n", need + 10);
    fake(CG "/memory/c/memory.usage_in_bytes", "11\n");
    CHECK(fake_start("cgroup") == DLP_ERR_LIMIT);
    fake(CG "/memory/c/memory.stat", "inactive_file 0\ntotal_inactive_file 1\n");
    CHECK(fake_start("") == DLP_OK);
    fake_gone(CG "/memory/c/memory.stat");
    fake(CG "/memory/c/memory.usage_in_bytes", "10\n");
    CHECK(fake_start("") == DLP_OK);
    fake_gone("/proc/self/cgroup");
    fake_gone(CG "/memory/c/memory.limit_in_bytes");
    fake_gone(CG "/memory/c/memory.usage_in_bytes");
    preload__auto__what_the_system_leaves();
    fake_gone(CG "/memory.max");
    fake_gone(CG "/memory.current");
    fake_gone(CG "/a/memory.max");
    fake_gone(CG "/a/memory.current");
    fake_gone(CG "/a/b/memory.max");
    seam_path = NULL;
    CHECK(rmdir(fake_dir) == 0);
}

static int fake_cpus(void) {
    dlp_pipe *p = NULL;
    dlp_stats s;
    rig r;
    plan_rig(&r, PLAIN, 1);
    CHECK(rig_start(&r, &p) == DLP_OK && dlp_pipe_stats(p, &s) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
    return (int)s.cpus;
}

static void start__cpu_quotas_of_cgroups__cores_by_them(void) {
    const char *const quota = CG "/cpu/c/cpu.cfs_quota_us", *const period =
                                                                CG "/cpu/c/cpu.cfs_period_us";
    cpu_set_t set;
    int all;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    all = CPU_COUNT(&set);
    if (all < 2) return; /* no quota tells more than the mask */
    snprintf(fake_dir, sizeof fake_dir, "/tmp/pipe_plan.XXXXXX");
    if (!CHECK(mkdtemp(fake_dir) != NULL)) return;
    seam_path = fake_path;
    CHECK(fake_cpus() == all);
    fake("/proc/self/cgroup", "3:memory:/m\n2:cpuset:/s\n1:cpuacct,cpu:/c/d\n"); /* version 1 */
    fake(quota, "100000\n");
    CHECK(fake_cpus() == all); /* nothing says of what */
    fake(period, "100000\n");
    CHECK(fake_cpus() == 1); /* the parent's */
    fake(quota, "100001\n");
    CHECK(fake_cpus() == 2);
    fake(quota, "1\n");
    CHECK(fake_cpus() == 1);
    fake(quota, "-1\n");
    CHECK(fake_cpus() == all);
    fake(period, "0\n");
    fake(quota, "1000\n");
    CHECK(fake_cpus() == all);
    fake_gone(quota);
    fake_gone(period);
    fake("/proc/self/cgroup", "1:cpu:/x\n0::/a/b\n"); /* version 2 */
    fake(CG "/a/b/cpu.max", "max 100000\n");
    CHECK(fake_cpus() == all);
    fake(CG "/a/cpu.max", "50000 100000\n");
    CHECK(fake_cpus() == 1);
    fake(CG "/a/cpu.max", "50000\n");
    CHECK(fake_cpus() == all);
    fake_gone(CG "/a/b/cpu.max");
    fake_gone(CG "/a/cpu.max");
    fake_gone("/proc/self/cgroup");
    seam_path = NULL;
    CHECK(rmdir(fake_dir) == 0);
}

/* As many batch workers as batches ahead, but not by the hundred unless somebody asks. */
static void collate__workers_nobody_named__few_and_told(void) {
    static const int cases[][3] = {{1, 0, 1},     {3, 0, 3},        {64, 0, 64},        {65, 0, 64},
                                   {4096, 0, 64}, {4096, 300, 300}, {4096, DLP_NONE, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        dlp_pipe *p = NULL;
        dlp_plan plan;
        uint64_t told = 0;
        plan_rig(&r, COLLATE, 1);
        r.pipe.prefetch_factor = cases[i][0];
        r.batch_by.num_workers = cases[i][1];
        CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK);
        for (uint32_t l = 0; l < plan.n_lines; l++)
            if (strcmp(plan.lines[l].what, "worker records: of the batch stage") == 0)
                told = plan.lines[l].count;
        CHECK(told == (uint64_t)cases[i][2] && plan_sum(&plan) == plan.total_bytes);
        if (i == 4) {
            uint64_t batches;
            CHECK(dlp_pipe_start(p) == DLP_OK && rig_drain(p, &batches) == DLP_END);
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- numbers that no machine has ---- */

__extension__ typedef unsigned __int128 wide;
static uint64_t narrow(wide n) { return n > UINT64_MAX ? UINT64_MAX : (uint64_t)n; }

static uint32_t pick(uint64_t *seed, uint32_t n) {
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(dlp_hash(*seed, 1, 2, 3) >> 33) % n;
}
static uint64_t pick_of(uint64_t *seed, const uint64_t *from, uint32_t n) {
    return from[pick(seed, n)];
}
#define PICK(...) \
    pick_of(seed, (const uint64_t[]){__VA_ARGS__}, \
            (uint32_t)(sizeof((const uint64_t[]){__VA_ARGS__}) / 8))

static int no_load(void *user, dlp_part *part) {
    (void)user;
    part->bytes = 0;
    return 0;
}
static const uint64_t part_items[4] = {1 << 20, 1 << 20, 1 << 20, 1 << 20};

typedef struct extreme {
    dlp_field fields[DLP_MAX_FIELDS];
    char names[DLP_MAX_FIELDS][8];
    dlp_dataset dataset;
    dlp_pipe_desc pipe;
    dlp_sampler_desc sampler;
    dlp_source fetch;
    dlp_node_cache cache;
    dlp_node_load parts;
    dlp_node_batch batch;
    uint32_t device_buffers;
    wide row_bytes;
} extreme;

static void extreme_fields(extreme *x, uint64_t *seed) {
    int64_t most = (INT64_C(1) << 46) / (int64_t)x->batch.batch_size;
    x->dataset.n_fields = (uint32_t)PICK(1, 2, 16);
    x->dataset.fields = x->fields;
    for (uint32_t f = 0; f < x->dataset.n_fields; f++) {
        snprintf(x->names[f], sizeof x->names[f], "f%u", f);
        x->fields[f].name = x->names[f];
        x->fields[f].dtype = DLP_U8;
        x->fields[f].ndim = 1;
        x->fields[f].shape[0] = pick(seed, 4) ? most : 1;
        x->fields[f].ragged = pick(seed, 4) == 0;
        x->row_bytes += (uint64_t)x->fields[f].shape[0];
    }
}

/* All that a desc can ask for, each at random as little or as much as it may be. */
static void extreme_any(extreme *x, uint64_t *seed) {
    memset(x, 0, sizeof *x);
    x->batch.batch_size = (uint32_t)PICK(1, 64, 1 << 20);
    extreme_fields(x, seed);
    x->dataset.n_items = PICK(1, 1000, UINT64_C(1) << 48);
    x->dataset.fetch = all_fetch;
    x->pipe.prefetch_factor = (int32_t)PICK(1, 2, 4096);
    x->pipe.max_held = (int32_t)PICK(1, 63, 256);
    x->pipe.trace_bytes = (uint32_t)PICK(0, 64 << 20);
    x->fetch.dataset = &x->dataset;
    x->fetch.workers.num_workers = (int32_t)PICK(0, 1, 1024);
    x->fetch.workers.dispatch = PICK(0, 1) ? DLP_DISPATCH_BATCHES : DLP_DISPATCH_CLAIM;
    if (x->fetch.workers.num_workers > 0 && pick(seed, 2)) {
        x->fetch.fetcher = DLP_FETCH_THREADS;
        x->fetch.in_flight = (int32_t)PICK(1, 1024);
    }
    if (pick(seed, 2)) x->batch.collate = dlp_collate_pad;
    if (pick(seed, 2)) x->cache.bytes = UINT64_C(1) << 46;
    x->device_buffers = x->pipe.max_held < 64 && pick(seed, 2) ? 64 : 0;
    if (pick(seed, 2)) {
        x->parts = (dlp_node_load){.n_parts = 4,
                                   .items = part_items,
                                   .load = no_load,
                                   .max_part_bytes = UINT64_C(1) << 46,
                                   .queue_size = 4096};
        x->dataset.n_items = 0;
        x->sampler.order = DLP_ORDER_PARTS;
    }
}

static int extreme_wire(const extreme *x, dlp_pipe **p) {
    rig_table t = {.n = 0};
    table_list(&t, &x->sampler);
    if (x->parts.n_parts) table_load(&t, &x->parts);
    table_fetch(&t, &x->fetch, 0);
    if (x->cache.bytes) table_row(&t, (dlp_node){.verb = DLP_CACHE, .cache = x->cache});
    table_row(&t, (dlp_node){.verb = DLP_BATCH, .batch = x->batch});
    if (x->device_buffers)
        table_row(&t, (dlp_node){.verb = DLP_TRANSFER, .queue = {.capacity = x->device_buffers}});
    return table_pipe(&t, p, &x->pipe, NULL);
}

/* No line and no sum comes round to a small number; what no machine has is never begun. */
static void plan__anything_at_its_extremes__saturates_and_is_a_limit(void) {
    uint64_t state = 11, *seed = &state;
    int whole = 0, refused = 0;
    for (int i = 0; i < (is_short() ? 300 : 2000); i++) {
        extreme x;
        dlp_pipe *p = NULL;
        dlp_plan plan;
        wide sum = 0, least;
        extreme_any(&x, seed);
        if (CHECK(extreme_wire(&x, &p) == DLP_OK) && dlp_pipe_plan(p, &plan) == DLP_OK) {
            whole++;
            for (uint32_t l = 0; l < plan.n_lines; l++) {
                const dlp_plan_line *line = &plan.lines[l];
                CHECK(line->bytes == narrow((wide)line->count * line->bytes_each));
                sum += line->bytes;
            }
            least = (wide)plan.slots * x.batch.batch_size * x.row_bytes;
            if (x.parts.n_parts) least += (wide)4096 << 46;
            if (!CHECK(plan.total_bytes == narrow(sum) && plan.total_bytes >= narrow(least)))
                printf("  case %d: the plan has %" PRIu64 "\n", i, plan.total_bytes);
            if (least >> 45 != 0) {
                refused++;
                CHECK(dlp_pipe_start(p) == DLP_ERR_LIMIT);
            }
        }
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
    CHECK(whole > 50 && refused > 20);
}

/* 2^14 chunks of 16 fields of 2^46 bytes each are 2^64 bytes. */
static void chunks__preload_of_all_there_could_be__is_a_limit(void) {
    for (int preload = DLP_PRELOAD_NONE; preload <= DLP_PRELOAD_AUTO; preload++)
        for (int device = 0; device < 2; device++)
            for (uint64_t chunks = 1 << 14; chunks < 1 << 16; chunks += 12345) {
                dlp_field fields[DLP_MAX_FIELDS];
                char names[DLP_MAX_FIELDS][8];
                dlp_pipe *p = NULL;
                dlp_error e;
                dlp_chunks_desc d = {.n_items = chunks << 26,
                                     .fields = fields,
                                     .n_fields = DLP_MAX_FIELDS,
                                     .chunk_rows = 1 << 26,
                                     .batch_size = 1 << 20,
                                     .load = no_chunk,
                                     .preload = preload};
                memset(fields, 0, sizeof fields);
                for (uint32_t f = 0; f < DLP_MAX_FIELDS; f++) {
                    snprintf(names[f], sizeof names[f], "f%u", f);
                    fields[f] = (dlp_field){names[f], DLP_U8, 1, {1 << 20}, 0, 0};
                }
                if (device) d.device = dlp_device_host();
                if (preload == DLP_PRELOAD_AUTO) d.pipe.limit_bytes = UINT64_C(1) << 40;
                if (preload == DLP_PRELOAD_DEVICE && !device) continue;
                if (!CHECK(dlp_chunks_open(&p, &d, &e) == DLP_ERR_LIMIT))
                    printf("  preload %d, device %d: %s\n", preload, device, e.message);
                if (preload == DLP_PRELOAD_CPU || preload == DLP_PRELOAD_DEVICE)
                    CHECK(strstr(e.message, " 18446744073709551615 bytes") != NULL);
            }
}

/* ---- items of 10^9 bytes, in every row that has a size ---- */

enum {
    IN_ROWS,
    FILTERED,
    MADE,
    COUNTED_PARTS,
    PARTS_OF_ANY,
    MADE_OF_PARTS,
    PART_OF_AN_ITEM,
    DOCUMENTS,
    MADE_DOCUMENTS,
    SHUFFLED,
    ZIPPED,
    MIXED,
    MADE_OF_JOINED,
    MADE_OF_PUSHED,
    READ_BY_REQUESTS,
    ENDS_IN_A_CELL,
    ENDS_IN_ROWS,
    GIANTS
};

static const dlp_field small_ = {.name = "small", .dtype = DLP_U64};

static int no_expand(void *user, dlp_expand *x) {
    (void)user;
    (void)x;
    return 0;
}
static int keep_it(void *user, const dlp_item *it) {
    (void)user;
    (void)it;
    return 1;
}
static int no_submit(void *user, void *state, dlp_item *it) {
    (void)user;
    (void)state;
    (void)it;
    return DLP_FULL;
}
static int no_reap(void *user, void *state, dlp_item **done, int *code, int max, int timeout_ms) {
    (void)user;
    (void)state;
    (void)done;
    (void)code;
    (void)max;
    (void)timeout_ms;
    return 0;
}

typedef struct giant {
    dlp_node row[8];
    uint32_t n, makes; /* the row whose queue counts cells of inputs */
    const char *from[3];
    dlp_field big;
    uint64_t bytes; /* of an item, or of a part */
    uint32_t items; /* of an input */
    wide cell;      /* bytes that a cell has at least */
} giant;

static void giant_row(giant *g, const char *name, int verb) {
    g->row[g->n++] = (dlp_node){.name = name, .verb = verb};
}
static void giant_list(giant *g, const char *name) {
    giant_row(g, name, DLP_LIST);
    g->row[g->n - 1].list.n_items = 4;
}
static void giant_fetch(giant *g, const char *name, const dlp_field *f) {
    giant_row(g, name, DLP_FETCH);
    g->row[g->n - 1].fetch = (dlp_node_fetch){.fetch = all_fetch, .fields = f, .n_fields = 1};
}
static void giant_expand(giant *g, const char *name, uint32_t items) {
    giant_row(g, name, DLP_EXPAND);
    g->row[g->n - 1].expand =
        (dlp_node_expand){.expand = no_expand, .max_out = items, .fields = &g->big, .n_fields = 1};
    g->makes = g->n - 1;
    g->cell += (wide)items * g->bytes;
}
static void giant_load(giant *g, dlp_part_fn load, int counted) {
    giant_row(g, "load", DLP_LOAD);
    g->row[g->n - 1].load = (dlp_node_load){.load = load,
                                            .items = counted ? part_items : NULL,
                                            .max_items = counted ? 0 : g->items,
                                            .max_part_bytes = g->bytes};
    g->makes = g->n - 1;
    g->cell += g->bytes;
}
static void giant_filter(giant *g) {
    giant_row(g, "keep", DLP_FILTER);
    g->row[g->n - 1].filter.keep = keep_it;
    g->makes = g->n - 1;
}
static void giant_end(giant *g) { /* the field ends, and another one is there */
    giant_row(g, "end", DLP_MAP);
    g->row[g->n - 1].map =
        (dlp_node_map){.item = all_fetch, .fields = &small_, .n_fields = 1, .ends = "big"};
}

/* A list, and what else stands before the rows that the kind is about. */
static void giant_makers(giant *g, int kind) {
    static const dlp_async async = {.submit = no_submit, .reap = no_reap};
    if (kind == COUNTED_PARTS || kind == PARTS_OF_ANY || kind == MADE_OF_PARTS)
        giant_load(g, no_load, kind == COUNTED_PARTS);
    if (kind != MADE && kind != MADE_DOCUMENTS && kind != SHUFFLED)
        giant_fetch(g, "read", g->cell > 0 || kind == PART_OF_AN_ITEM ? &small_ : &g->big);
    if (kind == PART_OF_AN_ITEM) giant_load(g, no_load, 0), giant_fetch(g, "of", &small_);
    if (kind == READ_BY_REQUESTS) g->row[1].fetch.fetch = NULL, g->row[1].fetch.async = &async;
    if (kind == ENDS_IN_A_CELL || kind == ENDS_IN_ROWS) giant_end(g);
    if (kind == FILTERED || kind == PART_OF_AN_ITEM || kind == READ_BY_REQUESTS ||
        kind == ENDS_IN_A_CELL)
        giant_filter(g);
    if (kind == MADE_OF_PARTS)
        giant_expand(g, "make", 1), g->cell += (wide)g->bytes * (g->items - 1);
    if (kind == MADE || kind == MADE_DOCUMENTS || kind == SHUFFLED)
        giant_expand(g, "make", g->items);
    if (kind == DOCUMENTS || kind == MADE_DOCUMENTS) {
        giant_row(g, "pack", DLP_PACK);
        g->row[g->n - 1].pack.tokens = 16;
        g->makes = g->n - 1;
    }
    if (kind == SHUFFLED) {
        giant_row(g, "window", DLP_WINDOW);
        g->row[g->n - 1].window.items = 4;
    }
}

static void giant_joins(giant *g, int kind) {
    giant_list(g, "list");
    if (kind == MADE_OF_JOINED) giant_fetch(g, "a", &small_);
    if (kind != MADE_OF_JOINED) giant_expand(g, "a", g->items);
    giant_list(g, "others");
    giant_fetch(g, "b", kind == MIXED ? &g->big : kind == ZIPPED ? &small_ : &g->big);
    g->from[0] = "a";
    g->from[1] = "b";
    giant_row(g, "both", kind == MIXED ? DLP_MIX : DLP_ZIP);
    g->row[g->n - 1].from = g->from;
    if (kind == MADE_OF_JOINED) giant_expand(g, "make", g->items);
}

static void giant_table(giant *g, int kind, uint64_t bytes, uint32_t items, dlp_push *push) {
    memset(g, 0, sizeof *g);
    g->bytes = bytes;
    g->items = items;
    g->big = (dlp_field){.name = "big", .dtype = DLP_U8, .ndim = 1, .shape = {(int64_t)bytes}};
    g->big.ragged = kind == DOCUMENTS || kind == MADE_DOCUMENTS;
    if (kind == MADE_OF_PUSHED) {
        giant_row(g, "push", DLP_PUSH);
        g->row[0].push.source = push;
        giant_expand(g, "make", items);
    } else if (kind == ZIPPED || kind == MIXED || kind == MADE_OF_JOINED) {
        giant_joins(g, kind);
    } else {
        giant_list(g, "list");
        giant_makers(g, kind);
    }
    if (g->cell == 0) g->cell = bytes;
    giant_row(g, "batch", DLP_BATCH);
    g->row[g->n - 1].batch.batch_size = 1;
}

/* The table is refused in words before it takes anything: by what is wrong in a row, or with the
   sum of its plan. Returns 1 if it has a plan. */
static int giant_refused(const giant *g, wide least) {
    const seam_alive alive = seam_now();
    const long before = seam_read(&seam.bytes);
    dlp_pipe_desc d = {.limit_bytes = least >> 45 != 0 ? 0 : UINT64_C(1) << 29};
    dlp_error planned = {.code = 0}, err = {.code = 0};
    dlp_pipe *p = NULL;
    dlp_plan plan;
    wide all = 0;
    char sum[40];
    const int has = dlp_nodes_plan(g->row, g->n, NULL, &plan, &planned) == DLP_OK;
    const int rc = dlp_pipe_open(&p, g->row, g->n, &d, &err);
    int ok = rc == err.code && (has ? rc == DLP_ERR_LIMIT : rc == planned.code && rc < 0);
    if (has) {
        for (uint32_t l = 0; l < plan.n_lines; l++) all += plan.lines[l].bytes;
        ok &= plan.total_bytes == narrow(all) && all >= narrow(least);
        snprintf(sum, sizeof sum, "needs %" PRIu64 " bytes", plan.total_bytes);
        ok &= strstr(err.message, sum) != NULL;
    } else {
        ok &= err.stage[0] != 0 && err.field[0] != 0 && strcmp(err.message, planned.message) == 0;
    }
    ok &= seam_read(&seam.bytes) - before < 1 << 20 && seam_same(alive);
    if (!CHECK(ok))
        printf("  %s of %" PRIu64 " bytes, %u of an input: %" PRIu64 " bytes, %d %s.%s: %s\n",
               g->row[g->makes].name, g->bytes, g->items, has ? plan.total_bytes : 0, rc, err.stage,
               err.field, err.message);
    if (p != NULL) dlp_pipe_close(p);
    return has;
}

/* No sum of cells comes round to a small number, though 2^22 cells of 2^46 bytes are more than
   2^64. */
static void makers__items_of_10_to_the_9_bytes__refused_before_any_memory(void) {
    static const uint64_t bytes[] = {1000000000, UINT64_C(1) << 36, UINT64_C(1) << 46};
    static const uint32_t items[] = {1, 1000, 8192, 1 << 30};
    uint32_t plans[GIANTS] = {0};
    dlp_push *push = NULL;
    dlp_error err;
    CHECK(dlp_push_open(&push, &(dlp_push_desc){.fields = &small_, .n_fields = 1, .writers = 1},
                        &err) == DLP_OK);
    for (int kind = 0; kind < GIANTS; kind++)
        for (int i = 0; i < 3 * 4 * 2; i++) {
            const uint32_t most = kind == COUNTED_PARTS ? 4096 : (1 << 22) - (1 << 16);
            const uint32_t cells = i % 2 != 0 ? most : 0;
            giant g;
            giant_table(&g, kind, bytes[i / 8], items[i / 2 % 4], push);
            if (g.makes > 0) g.row[g.makes].queue.capacity = cells;
            plans[kind] += (uint32_t)giant_refused(
                &g, g.cell * (g.makes > 0 && cells > 0 && kind != ENDS_IN_A_CELL ? cells : 1));
        }
    for (int kind = 0; kind < GIANTS; kind++)
        if (!CHECK(plans[kind] > 0)) printf("  kind %d is always refused\n", kind);
    CHECK(dlp_push_close(push) == DLP_OK);
    giant g;
    giant_table(&g, IN_ROWS, 1000000000, 1, NULL);
    CHECK(dlp_push_open(&push, &(dlp_push_desc){.fields = &g.big, .n_fields = 1, .writers = 1},
                        &err) == DLP_ERR_ARG);
    CHECK(strstr(err.message, "an item has more than 1048568 bytes") != NULL);
}

/* No expand says how many items there are: a load in a load does, or the counts of parts. */
static void loads__too_many_items_of_an_input__refused(void) {
    static const uint64_t counts[4] = {1, UINT64_C(1) << 34, 1, 1};
    for (int counted = 0; counted < 2; counted++) {
        giant g;
        dlp_error err = {.code = 0};
        giant_table(&g, counted ? COUNTED_PARTS : PART_OF_AN_ITEM, 8, 1 << 17, NULL);
        if (counted) { /* list, load, read, keep, batch */
            g.row[4] = g.row[3];
            g.row[3] = (dlp_node){.name = "keep", .verb = DLP_FILTER, .filter = {.keep = keep_it}};
            g.row[1].load.items = counts;
            g.n++;
        } else { /* list, outer, load, of, keep, batch */
            g.row[1] = g.row[2];
            g.row[1].name = "outer";
        }
        CHECK(dlp_nodes_plan(g.row, g.n, NULL, &(dlp_plan){0}, &err) == DLP_ERR_ARG);
        CHECK(strcmp(err.stage, counted ? "load" : "outer") == 0);
        CHECK(strcmp(err.field, "load.max_items") == 0);
        CHECK(strstr(err.message,
                     "up to 17179869184 items, must have at most 2^31; lower max_items"));
    }
}

static uint64_t says_bytes, says_items;
static int say_much(void *user, dlp_part *part) {
    (void)user;
    part->bytes = says_bytes;
    part->items = says_items;
    return 0;
}

/* A load that says that it wrote more than there is room for is an error of its part. */
static void load__more_than_max_part_bytes__refused_in_words(void) {
    static const int kinds[] = {COUNTED_PARTS, PARTS_OF_ANY, MADE_OF_PARTS, PART_OF_AN_ITEM,
                                ZIPPED};
    for (int i = 0; i < 5 * 3; i++) {
        const uint64_t much = i % 3 == 1 ? UINT64_MAX : 1000000000;
        giant g;
        dlp_pipe *p = NULL;
        dlp_error err = {.code = 0};
        dlp_batch *b;
        char words[120];
        says_bytes = i % 3 == 2 ? 8 : much;
        says_items = i % 3 == 2 ? much : 1;
        snprintf(words, sizeof words,
                 i % 3 == 2 ? "load set items to %" PRIu64 ", max_items is 1"
                            : "load set bytes to %" PRIu64 ", max_part_bytes is 8",
                 much);
        if (i % 3 == 2 && kinds[i / 3] == COUNTED_PARTS) continue; /* its items are given */
        giant_table(&g, kinds[i / 3], 8, 1, NULL);
        if (kinds[i / 3] == ZIPPED) { /* list, load, a, others, b, both, batch */
            memmove(&g.row[2], &g.row[1], (g.n++ - 1) * sizeof *g.row);
            g.row[2] = (dlp_node){.name = "a",
                                  .verb = DLP_FETCH,
                                  .fetch = {.fetch = all_fetch, .fields = &g.big, .n_fields = 1}};
            g.row[1] = (dlp_node){
                .name = "load", .verb = DLP_LOAD, .load = {.max_items = 1, .max_part_bytes = 8}};
            g.makes = 1;
        }
        for (uint32_t k = 1; k < g.n; k++)
            if (g.row[k].verb == DLP_LOAD) g.row[k].load.load = say_much;
        CHECK(dlp_pipe_open(&p, g.row, g.n, NULL, &err) == DLP_OK);
        if (p == NULL) {
            printf("  kind %d: %s.%s: %s\n", kinds[i / 3], err.stage, err.field, err.message);
            continue;
        }
        CHECK(dlp_pipe_next_timeout(p, &b, 20000) == DLP_ERR_LENGTH);
        if (!CHECK(strstr(dlp_pipe_error(p)->message, words) != NULL))
            printf("  kind %d: %s\n", kinds[i / 3], dlp_pipe_error(p)->message);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* ---- a branch that is 10^6 times longer than the other ---- */

enum { LONG = 1000000, LONG_ROWS = 512 };

static uint64_t read_of_[2]; /* items of a branch that were read */

static int fetch_of_branch(void *user, dlp_item *it) {
    const uint64_t branch = *(const uint64_t *)user, x = branch << 48 | it->index;
    __atomic_add_fetch(&read_of_[branch], 1, __ATOMIC_RELAXED);
    memcpy(it->data[0], &x, sizeof x);
    return 0;
}

typedef struct far {
    int zip, workers;
    int64_t steps;
    uint64_t first, weight; /* items of the first branch; of the other, which has LONG as many */
    uint64_t rows;          /* that come in all */
} far;

static uint32_t far_table(dlp_node *to, const far *f) {
    static const uint64_t number[2] = {0, 1};
    static const char *const from[] = {"a", "b", NULL};
    static uint64_t of_mix[2];
    static dlp_field fields[2];
    of_mix[0] = 1;
    of_mix[1] = f->weight;
    for (uint32_t k = 0; k < 2; k++) {
        fields[k] = (dlp_field){.name = f->zip && k == 1 ? "y" : "x", .dtype = DLP_U64};
        to[2 * k] = (dlp_node){.name = k == 0 ? "as" : "bs",
                               .verb = DLP_LIST,
                               .list = {.n_items = f->first * (k == 0 ? 1 : LONG)}};
        to[2 * k + 1] = (dlp_node){.name = from[k],
                                   .verb = DLP_FETCH,
                                   .fetch = {.fetch = fetch_of_branch,
                                             .user = (void *)(uintptr_t)&number[k],
                                             .fields = &fields[k],
                                             .n_fields = 1},
                                   .workers = {.num_workers = f->workers}};
    }
    to[4] = (dlp_node){.name = "both", .from = from, .verb = f->zip ? DLP_ZIP : DLP_MIX};
    if (!f->zip) to[4].mix.weights = of_mix;
    to[5] = (dlp_node){.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = LONG_ROWS}};
    return 6;
}

/* Each branch gives its items in turn, the short one again and again if there are steps. No more
   of a branch is read than its cells have room for, and the pipe takes nothing once it runs. */
static void branch__10_to_the_6_times_longer__order_and_end(void) {
    const far all[] = {{1, DLP_NONE, 0, 3, 1, 3},
                       {1, 2, 0, 700, 1, 700},
                       {1, DLP_NONE, 5, 3, 1, 5 * LONG_ROWS},
                       {1, 2, 5, 3, 1, 5 * LONG_ROWS},
                       {0, DLP_NONE, 0, 300, 1, 0}, /* 600 or 601, by the phase */
                       {0, 2, 5, 3, 1, 5 * LONG_ROWS},
                       {0, DLP_NONE, 0, 1, LONG, LONG + 1}};
    for (int i = 0; i < (is_short() ? 6 : 7); i++) {
        const far *f = &all[i];
        const dlp_pipe_desc d = {.seed = 3, .steps_per_epoch = f->steps};
        uint64_t rows = 0, given[2] = {0, 0}, cells;
        dlp_node nodes[6];
        dlp_pipe *p = NULL;
        dlp_batch *b;
        static dlp_stats stats;
        const uint32_t n = far_table(nodes, f);
        int rc, ok = 1;
        memset(read_of_, 0, sizeof read_of_);
        if (!CHECK(dlp_pipe_open(&p, nodes, n, &d, NULL) == DLP_OK)) return;
        CHECK(dlp_pipe_stats(p, &stats) == DLP_OK);
        cells = stats.stages[dlp_node_stage(p, "both")].cells * DLPI_INPUT_RUN;
        const long had = seam_read(&seam.bytes);
        while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
            for (uint32_t r = 0; r < b->count; r++) {
                for (uint32_t k = 0; k < b->n_fields; k++) {
                    const uint64_t x = ((const uint64_t *)b->fields[k].data)[r], of = x >> 48;
                    const uint64_t items = f->first * (of == 0 ? 1 : LONG);
                    ok &= !f->zip || of == k;
                    ok &= of < 2 && (x & 0xffffffffffff) == given[of & 1]++ % items;
                }
                ok &= f->zip ? given[0] == given[1] : 1;
            }
            rows += b->count;
            for (int k = 0; k < 2; k++)
                ok &= __atomic_load_n(&read_of_[k], __ATOMIC_RELAXED) <= given[k] + cells;
            dlp_pipe_release(p, b);
        }
        ok &= rc == DLP_END && (rows == f->rows || (f->rows == 0 && (rows == 600 || rows == 601)));
        if (i == 6) ok &= given[0] == 1 && given[1] == LONG;
        ok &= seam_read(&seam.bytes) == had;
        if (!CHECK(ok))
            printf("  %d: %d, %" PRIu64 " rows, %" PRIu64 " and %" PRIu64 " items\n", i, rc, rows,
                   given[0], given[1]);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* The link into a stage, or, of NULL, into the consumer. */
static const dlp_link *link_to(const dlp_plan *plan, const char *stage) {
    const char *to = stage != NULL ? stage : "consumer";
    for (uint32_t i = 0; i < plan->n_links; i++)
        if (strcmp(plan->links[i].to, to) == 0) return &plan->links[i];
    CHECK(0 && "no such link");
    return &plan->links[0];
}

/* What a pipe took for zeros, as planned and as started. */
static void resolved__zeros__what_was_taken(void) {
    rig r;
    dlp_pipe *p;
    dlp_plan plan;
    dlp_workers_desc workers;
    plan_rig(&r, COLLATE, 2);
    r.pipe.epochs = 0;
    r.pipe.prefetch_factor = r.pipe.max_held = 0;
    r.batch_by.num_workers = 0;
    CHECK(rig_wire(&r, &p, NULL) == DLP_OK);
    CHECK(dlp_stage_resolved(p, 0, &workers) == DLP_ERR_STATE);
    for (int started = 0; started < 2; started++) {
        CHECK((started ? dlp_pipe_start(p) : dlp_pipe_plan(p, &plan)) == DLP_OK);
        CHECK(dlp_pipe_plan(p, &plan) == DLP_OK && plan.slots == 3);
        CHECK(link_to(&plan, "fetch")->capacity == 2); /* so 1 may be held */
        CHECK(link_to(&plan, "fetch")->readers == 2 && link_to(&plan, "fetch")->from_stage == 0);
        CHECK(link_to(&plan, "sampler")->writers == 1); /* inline */
        CHECK(link_to(&plan, "batch")->readers == 2 && link_to(&plan, NULL)->writers == 2);
        CHECK(dlp_stage_resolved(p, 2, &workers) == DLP_OK && workers.num_workers == 2);
        CHECK(strcmp(workers.name, "fetch") == 0);
        CHECK(dlp_stage_resolved(p, 3, &workers) == DLP_OK && workers.num_workers == 2);
        CHECK(strcmp(workers.name, "batch") == 0);
        CHECK(dlp_stage_resolved(p, 0, &workers) == DLP_OK && workers.num_workers == DLP_NONE);
        CHECK(dlp_stage_resolved(p, 99, &workers) == DLP_ERR_ARG);
        CHECK(dlp_stage_resolved(p, -1, &workers) == DLP_ERR_ARG);
        CHECK(dlp_stage_resolved(p, 2, NULL) == DLP_ERR_ARG);
        CHECK(dlp_stage_resolved(NULL, 2, &workers) == DLP_ERR_ARG);
    }
    CHECK(dlp_pipe_batches_per_epoch(p) == (1000 - 1) / (int64_t)r.batch.batch_size + 1);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* A fetcher's 16, a tuned stage's beginning, a transfer stage's buffers. */
static void resolved__loader__what_was_taken(void) {
    dlp_field field = {.name = "x", .dtype = DLP_U64};
    dlp_loader_desc d = {
        .dataset = {.n_items = 100, .fields = &field, .n_fields = 1, .fetch = all_fetch},
        .batch_size = 10,
        .num_workers = 2,
        .workers = {.workers_max = 4},
        .fetcher = DLP_FETCH_THREADS,
        .device = dlp_device_host(),
        .pipe = {.max_held = 3}};
    dlp_pipe *p = NULL;
    dlp_plan plan;
    dlp_workers_desc workers;
    CHECK(dlp_loader_open(&p, &d, NULL) == DLP_OK && dlp_pipe_plan(p, &plan) == DLP_OK);
    CHECK(dlpi_at_once(p->fetch) == 16);
    CHECK(dlp_stage_resolved(p, 2, &workers) == DLP_OK && workers.num_workers == 2);
    CHECK(workers.workers_min == 1 && workers.workers_max == 4);
    CHECK(link_to(&plan, "fetch")->readers == 4); /* the plan has room for all of them */
    CHECK(dlp_stage_resolved(p, 3, &workers) == DLP_OK && workers.num_workers == DLP_NONE);
    CHECK(strcmp(link_to(&plan, "transfer")->from, "fetch") == 0); /* no batch worker between */
    CHECK(plan.links[plan.n_links - 1].to_stage == 4 && plan.links[plan.n_links - 1].capacity == 4);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

int main(void) {
    rig_warm();
    resolved__zeros__what_was_taken();
    resolved__loader__what_was_taken();
    plan__anything_at_its_extremes__saturates_and_is_a_limit();
    chunks__preload_of_all_there_could_be__is_a_limit();
    makers__items_of_10_to_the_9_bytes__refused_before_any_memory();
    loads__too_many_items_of_an_input__refused();
    load__more_than_max_part_bytes__refused_in_words();
    branch__10_to_the_6_times_longer__order_and_end();
    collate__workers_nobody_named__few_and_told();
    plan__before_and_after_start__same_and_all_there_is();
    plan__of_any_loader__all_there_is();
    if (!is_short())
        run__every_slot_touched__not_above_plan(); /* a sanitizer has memory of its own */
    run__any_wiring__in_flight_within_prefetch_factor();
    run__pipes_under_one_budget__sum_is_used();
    start__memory_of_cgroup_and_machine__limits();
    start__cpu_quotas_of_cgroups__cores_by_them();
    return test_end("pipe_plan");
}
