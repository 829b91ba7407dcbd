#pragma once
/* tests: system/build/pipe_plan, system/shm/shm_deaths */
#include "base/cpus.h"
#include "inputs/check.h"
/* ---- memory limits: the desc's, a budget's, the cgroup's, what the system has left ----
   M1     budget.used_bytes   start adds before it looks; close takes it back   other pipes (M1) */

/* Return the bytes of files that the cgroup in `dir` has in its cache; 0 if they are not known. v1:
   the cgroup is of version 1. */
static uint64_t dlpi_cgroup_files(const char *dir, bool v1) {
    static const char *const given[2] = {"total_inactive_file", "total_active_file"};
    char path[600], text[4096];
    uint64_t sum = 0, bytes;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    if (!dlpi_read_text(path, text, sizeof text)) return 0;
    for (int i = 0; i < 2; i++) /* version 2 has no other totals */
        if (dlpi_numbers_behind(text, given[i] + (v1 ? 0 : 6), &bytes, 1))
            sum = dlpi_sum(sum, bytes);
    return sum;
}

/* Return the bytes that the memory limit of the cgroup in `dir` leaves; UINT64_MAX if no limit is
   known. v1: the cgroup is of version 1. Its cache of files counts as free, for the kernel gives it
   up. Without a limit the used bytes are not read: the kernel adds them up first, which takes
   longer than the rest of a start. */
static uint64_t dlpi_cgroup_memory(const char *dir, bool v1) {
    uint64_t max = dlpi_cgroup_number(dir, v1 ? "memory.limit_in_bytes" : "memory.max", NULL);
    uint64_t used, files;
    if (max > INT64_MAX / 2) return UINT64_MAX; /* version 1 has a large number for none */
    used = dlpi_cgroup_number(dir, v1 ? "memory.usage_in_bytes" : "memory.current", NULL);
    if (used == UINT64_MAX) return UINT64_MAX;
    files = dlpi_cgroup_files(dir, v1);
    used = files < used ? used - files : 0;
    return used > max ? 0 : max - used;
}

/* Refuse a plan that needs more than `limit` bytes. field: for the error; what: the limit, in words
   of the message. The message names the largest line of the plan. Returns DLP_ERR_LIMIT. */
static int dlpi_over(dlp_pipe *p, const dlp_plan *plan, uint64_t limit, const char *field,
                     const char *what) {
    const dlp_plan_line *big = &plan->lines[0];
    for (uint32_t i = 1; i < plan->n_lines; i++)
        if (plan->lines[i].bytes > big->bytes) big = &plan->lines[i];
    return dlpi_refuse(p, DLP_ERR_LIMIT, "", field,
                       "the plan needs %" PRIu64 " bytes, %s is %" PRIu64
                       "; the largest part is %" PRIu64 " x %" PRIu64 " bytes for %s",
                       plan->total_bytes, what, limit, big->count, big->bytes_each, big->what);
}

/* Return the bytes that the system has available; UINT64_MAX if it does not say. */
static uint64_t dlpi_system_left(void) {
    uint64_t kib = dlpi_read_number("/proc/meminfo", "MemAvailable:");
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

/* Return how many bytes the library may take for what the user has not asked for; UINT64_MAX if no
   limit is known. This is three quarters of what memory cgroup and system leave, but not more than
   the budget leaves. The last quarter is the program's, and the cache of files'. */
__attribute__((unused)) static uint64_t dlpi_memory_spare(const dlp_pipe *p) {
    uint64_t left = dlpi_cgroups_least("memory", dlpi_cgroup_memory);
    uint64_t system = dlpi_system_left(), used;
    const dlp_budget *budget = p->d.budget;
    if (system < left) left = system;
    left = left == UINT64_MAX ? left : left / 4 * 3;
    if (budget == NULL) return left;
    used = DLPI_LOAD_RLX(&budget->used_bytes); /* M1: a hint; start adds, then looks */
    used = used < budget->limit_bytes ? budget->limit_bytes - used : 0;
    return used < left ? used : left;
}

/* Compare the plan with every memory limit, before anything is allocated. The budget, if the desc
   has one, is charged with the plan's bytes here. Returns DLP_OK, or DLP_ERR_LIMIT. */
static int dlpi_check_limits(dlp_pipe *p, const dlp_plan *plan) {
    uint64_t all = plan->total_bytes, left, used;
    dlp_budget *budget = p->d.budget;
    if (p->d.limit_bytes && all > p->d.limit_bytes)
        return dlpi_over(p, plan, p->d.limit_bytes, "limit_bytes", "limit_bytes");
    if (all > PTRDIFF_MAX)
        return dlpi_over(p, plan, PTRDIFF_MAX, "limit_bytes", "what can be addressed");
    left = dlpi_cgroups_least("memory", dlpi_cgroup_memory);
    if (all > left) return dlpi_over(p, plan, left, "limit_bytes", "what the memory cgroup leaves");
    left = dlpi_system_left();
    if (left != UINT64_MAX && all / 1024 > left / 1024)
        return dlpi_over(p, plan, left, "limit_bytes", "the memory available");
    if (budget) {
        used = DLPI_ADD_SEQ(&budget->used_bytes, all); /* M1: each pipe adds before it looks */
        if (used > budget->limit_bytes || all > budget->limit_bytes - used) {
            DLPI_ADD_SEQ(&budget->used_bytes, 0 - all); /* M1 */
            return dlpi_over(p, plan, used > budget->limit_bytes ? 0 : budget->limit_bytes - used,
                             "budget", "what the budget leaves");
        }
        p->budget_bytes = all;
    }
    return DLP_OK;
}
