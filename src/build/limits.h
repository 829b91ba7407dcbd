#pragma once
/* tests: system/build/pipe_plan, system/shm/shm_deaths */
#include "base/cpus.h"
#include "inputs/check.h"
/* ---- memory limits: the desc's, a budget's, the cgroup's, what the system has left ----
   M1     budget.used_bytes   start adds before it looks; close takes it back   other pipes (M1) */

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

/* Return how many bytes the library may take for what the user has not asked for; UINT64_MAX if no
   limit is known. This is three quarters of what memory cgroup and system leave, but not more than
   the budget leaves. The last quarter is the program's, and the cache of files'. */
DLPI_UNREAD static uint64_t dlpi_memory_spare(const dlp_pipe *p) {
    uint64_t left = dlpi_memory_allowed();
    uint64_t system = dlpi_memory_available(), used;
    const dlp_budget *budget = p->d.budget;
    if (system < left) left = system;
    left = left == UINT64_MAX ? left : left / 4 * 3;
    if (budget == NULL) return left;
    used = DLPI_LOAD_RLX(&budget->used_bytes); /* M1: a hint; start adds, then looks */
    used = used < budget->limit_bytes ? budget->limit_bytes - used : 0;
    return used < left ? used : left;
}

/* Compare the plan with every memory limit, before anything is allocated. The budget, if the desc
   has one, is charged with the plan's bytes here. Workers of sources touch what they read into only
   as far as their items are long. So the limits of the system do not count it. Returns DLP_OK, or
   DLP_ERR_LIMIT. */
static int dlpi_check_limits(dlp_pipe *p, const dlp_plan *plan) {
    uint64_t all = plan->total_bytes, left, used;
    const uint64_t touched = dlpi_less(all, dlpi_area_bytes(p, DLPI_AREA_READS));
    dlp_budget *budget = p->d.budget;
    if (p->d.limit_bytes && all > p->d.limit_bytes)
        return dlpi_over(p, plan, p->d.limit_bytes, "limit_bytes", "limit_bytes");
    if (all > PTRDIFF_MAX)
        return dlpi_over(p, plan, PTRDIFF_MAX, "limit_bytes", "what can be addressed");
    left = dlpi_memory_allowed();
    if (touched > left)
        return dlpi_over(p, plan, left, "limit_bytes", "what the memory cgroup leaves");
    left = dlpi_memory_available();
    if (left != UINT64_MAX && touched / 1024 > left / 1024)
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
