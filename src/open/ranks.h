/* needs: ranks */
#pragma once
/* tests: unit/open/ranks_env, system/open/pipe_ranks */
#include "api/ranks.h"
#include "base/cpus.h"
#include "fail/fail.h"
/* What a launcher calls what it tells each of its processes. */
typedef struct dlpi_launcher {
    /* Names of the variables of the environment that a launcher sets. local_world NULL: the number
       of ranks on this node comes from Slurm's list. */
    const char *rank, *world, *local, *local_world;
} dlpi_launcher;

static const dlpi_launcher dlpi_launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
};

enum { DLPI_LAUNCHERS = sizeof dlpi_launchers / sizeof *dlpi_launchers };

/* Read the number up to 2^31 - 1 at *text, and move *text past it. Returns the number, or -2 if
   there is none. */
static int64_t dlpi_digits(const char **text) {
    const char *begin = *text;
    int64_t n = 0;
    for (; **text >= '0' && **text <= '9'; ++*text) {
        n = n * 10 + (**text - '0');
        if (n > INT32_MAX) return -2;
    }
    return *text != begin ? n : -2;
}

/* Return the number that an environment variable has. Returns -1 if it is not set, -2 if it is no
   such number. */
static int64_t dlpi_env_number(const char *name) {
    const char *text = getenv(name);
    int64_t n;
    if (text == NULL) return -1;
    n = dlpi_digits(&text);
    return *text == 0 ? n : -2;
}

/* Read Slurm's list of tasks of each node, "2(x3),1". Returns the tasks of this node. If node is -1
   all nodes must have as many, or -1 is returned. Returns -2 if it is no such list, or too
   short. */
static int64_t dlpi_slurm_tasks(const char *list, int64_t node) {
    int64_t tasks = -2, nodes = 0;
    for (const char *at = list;; at++) {
        int64_t n = dlpi_digits(&at), times = 1;
        if (n >= 0 && strncmp(at, "(x", 2) == 0) {
            at += 2;
            times = dlpi_digits(&at);
            if (*at++ != ')') return -2;
        }
        if (n < 1 || times < 1) return -2;
        if (node == -1 && tasks >= 0 && tasks != n) return -1;
        if (node == -1 || (node >= nodes && node < nodes + times)) tasks = n;
        nodes += times;
        if (*at == 0) return tasks;
        if (*at != ',') return -2;
    }
}

/* Return the tasks of this node, as dlpi_env_number does. *name: gets the name of the variable.
   Slurm has had three names for its list over the years, and the first that is set counts. */
static int64_t dlpi_slurm_number(const char **name) {
    static const char *const names[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                                        "SLURM_NTASKS_PER_NODE"};
    const int64_t node = dlpi_env_number("SLURM_NODEID");
    size_t i = 0;
    while (i < 2 && getenv(names[i]) == NULL) i++;
    *name = getenv(names[i]) != NULL ? names[i] : names[0];
    return getenv(*name) == NULL ? -1 : node == -2 ? -2 : dlpi_slurm_tasks(getenv(*name), node);
}

/* Check that a pair of variables are numbers, the first below the second. low, high: their names.
   r, w: their values. Returns 0, or DLP_ERR_ARG and *err. */
static int dlpi_env_pair(const char *low, int64_t r, const char *high, int64_t w, dlp_error *err) {
    if (r < 0 || w < 1)
        return dlpi_error_set(err, DLP_ERR_ARG, r < 0 ? low : high,
                              "%s is %s, must be a number; it goes with %s", r < 0 ? low : high,
                              (r < 0 ? r : w) == -1 ? "not set" : "none", r < 0 ? high : low);
    if (r >= w)
        return dlpi_error_set(err, DLP_ERR_ARG, low, "%s is %d, must be below %s, which is %d", low,
                              (int)r, high, (int)w);
    return DLP_OK;
}

/* True if this launcher has left its rank and world in the environment: *r and *w. A Slurm batch
   script has half of them, and is no rank. */
static bool dlpi_launched(const dlpi_launcher *by, int64_t *r, int64_t *w) {
    *r = dlpi_env_number(by->rank);
    *w = dlpi_env_number(by->world);
    return by->local_world == NULL ? *r != -1 && *w != -1 : *r != -1 || *w != -1;
}

/* Refuse two launchers with as many ranks that number this process differently. Launchers nest: one
   that has started another has as many ranks or fewer, and other numbers for them. The exceptions
   are torchrun, which numbers its ranks as they come, and the daemons of an MPI that Slurm has
   started. Returns 0, or DLP_ERR_ARG and *err. */
static int dlpi_launchers_agree(const dlpi_launcher *by, int64_t r, int64_t w, dlp_error *err) {
    bool first = by == dlpi_launchers;
    if (first && getenv("TORCHELASTIC_RUN_ID") != NULL) return DLP_OK;
    for (const dlpi_launcher *o = by + 1; w > 1 && o < dlpi_launchers + DLPI_LAUNCHERS; o++) {
        int64_t its, of;
        if (o->local_world == NULL && !first) continue;
        if (dlpi_launched(o, &its, &of) && its >= 0 && of == w && its != r)
            return dlpi_error_set(
                err, DLP_ERR_ARG, by->rank,
                "%s is %d, but %s is %d, both of %d ranks; unset the one that is not of this run",
                by->rank, (int)r, o->rank, (int)its, (int)w);
    }
    return DLP_OK;
}

/* Find rank and world_size in the environment. *by: the launcher that set them, or NULL if there is
   none: then the rank is 0 of 1. Returns 0, or DLP_ERR_ARG and *err. */
static int dlpi_ranks_find(dlp_ranks *to, const dlpi_launcher **by, dlp_error *err) {
    to->rank = 0;
    to->world_size = 1;
    *by = NULL;
    for (const dlpi_launcher *l = dlpi_launchers; l < dlpi_launchers + DLPI_LAUNCHERS; l++) {
        int64_t r, w;
        int rc;
        if (!dlpi_launched(l, &r, &w)) continue;
        if ((rc = dlpi_env_pair(l->rank, r, l->world, w, err)) != DLP_OK) return rc;
        to->rank = (uint32_t)r;
        to->world_size = (uint32_t)w;
        *by = l;
        return dlpi_launchers_agree(l, r, w, err);
    }
    return DLP_OK;
}

/* Find the rank and ranks on this node, from the launcher, or from another one with the same rank
   and world: RANK=$SLURM_PROCID. Returns 0, or DLP_ERR_ARG and *err. */
static int dlpi_ranks_on_node(dlp_ranks *to, const dlpi_launcher *by, dlp_error *err) {
    to->local_rank = 0;
    to->local_world_size = 1;
    for (const dlpi_launcher *l = by; l && l < dlpi_launchers + DLPI_LAUNCHERS; l++) {
        const char *name = l->local_world;
        int64_t r, w;
        int rc;
        if (l != by && (!dlpi_launched(l, &r, &w) || r != to->rank || w != to->world_size))
            continue;
        r = dlpi_env_number(l->local);
        w = l->local_world ? dlpi_env_number(name) : dlpi_slurm_number(&name);
        if (r == -1 && (w == -1 || l->local_world == NULL)) continue; /* it does not say them */
        if ((rc = dlpi_env_pair(l->local, r, name, w, err)) != DLP_OK) return rc;
        if (w > to->world_size)
            return dlpi_error_set(err, DLP_ERR_ARG, name,
                                  "%s is %d, must be at most %s, which is %u", name, (int)w,
                                  l->world, to->world_size);
        to->local_rank = (uint32_t)r;
        to->local_world_size = (uint32_t)w;
        return DLP_OK;
    }
    return DLP_OK;
}

/* ---- the CPU cores that each rank of a node gets ---- */

/* Return the process id of the launcher: the nearest ancestor that does not know our rank, past
   shells and wrappers. Returns 0 if none is seen, as in a container of our own. */
static int64_t dlpi_launcher_pid(const dlpi_launcher *by) {
    char entry[64];
    int64_t pid = dlpi_process_parent(0);
    const char *rank = by ? getenv(by->rank) : NULL;
    if (rank == NULL) return 0;
    snprintf(entry, sizeof entry, "%s=%s", by->rank, rank);
    for (int i = 0; i < 64 && pid > 0 && dlpi_process_began_with(pid, entry); i++)
        pid = dlpi_process_parent(pid);
    return pid;
}

/* Write the CPUs of a set into to[], sorted by place. Returns how many there are. */
static int dlpi_cpu_list(const dlpi_cpus *set, int32_t *to) {
    uint64_t place[DLP_MAX_CPUS] = {0};
    int n = 0;
    for (size_t cpu = 0; cpu < DLP_MAX_CPUS; cpu++)
        if (set->word[cpu / 64] >> cpu % 64 & 1) place[n++] = dlpi_cpu_place((int)cpu);
    qsort(place, (size_t)n, sizeof *place, dlpi_u64_compare);
    for (int i = 0; i < n; i++) to[i] = (int32_t)(place[i] & 0xfff);
    return n;
}

/* Give this rank the n CPUs that it has been confined to. node: CPUs of the node. If the node has
   too few for so many in each rank, ranks share CPUs, as where each has a socket: then `cores` is
   its part of them. */
static void dlpi_cpus_own(dlp_ranks *to, const int32_t *all, uint64_t n, uint64_t node) {
    uint64_t most = node / to->local_world_size;
    if (most < 1) most = 1;
    to->confined = 1;
    to->n_cpus = (int32_t)n;
    to->cores = (int32_t)(most < n ? most : n);
    memcpy(to->cpus, all, n * sizeof *all);
}

/* Decide which CPUs this rank should use: those that it was confined to, or its share of the
   node's. A CPU quota lowers `cores`. by: the launcher, or NULL. */
static void dlpi_ranks_cpus(dlp_ranks *to, const dlpi_launcher *by) {
    int32_t all[DLP_MAX_CPUS];
    int64_t pid = dlpi_launcher_pid(by), online = dlpi_cpus_online();
    dlpi_cpus own = {0}, its;
    uint64_t quota = dlpi_cpu_quota() / to->local_world_size, n, node;
    const int its_n = pid > 0 ? dlpi_cpus_of(pid, &its) : 0;
    const bool seen = its_n > 0, known = dlpi_cpus_of(0, &own) > 0;
    online = online < 1 ? 1 : online < DLP_MAX_CPUS ? online : DLP_MAX_CPUS;
    for (size_t cpu = 0; cpu < (size_t)online && !known; cpu++)
        own.word[cpu / 64] |= UINT64_C(1) << cpu % 64;
    n = (uint64_t)dlpi_cpu_list(&own, all);
    node = (uint64_t)(seen ? its_n : online);
    if (known && (seen ? memcmp(&own, &its, sizeof own) != 0 : n < node)) {
        dlpi_cpus_own(to, all, n, node);
    } else { /* its share of what all ranks of the node may use */
        const uint64_t from = to->local_rank * n / to->local_world_size;
        const uint64_t end = (to->local_rank + UINT64_C(1)) * n / to->local_world_size;
        to->cores = to->n_cpus = end > from ? (int32_t)(end - from) : 1;
        memcpy(to->cpus, all + from, (size_t)to->n_cpus * sizeof *all);
    }
    if (quota < 1) quota = 1;
    if (quota < (uint64_t)to->cores) to->cores = (int32_t)quota;
}

/* ---- public calls ---- */

DLPDEF int dlp_ranks_from_env(uint32_t *rank, uint32_t *world_size, dlp_error *err) {
    const dlpi_launcher *by;
    dlp_ranks found;
    int rc;
    if (rank == NULL || world_size == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, rank ? "world_size" : "rank", "it is NULL");
    if ((rc = dlpi_ranks_find(&found, &by, err)) != DLP_OK) return rc;
    *rank = found.rank;
    *world_size = found.world_size;
    return DLP_OK;
}

DLPDEF int dlp_ranks_describe(dlp_ranks *out, dlp_error *err) {
    const dlpi_launcher *by;
    dlp_ranks found;
    int rc;
    if (out == NULL) return dlpi_error_set(err, DLP_ERR_ARG, "out", "out is NULL");
    memset(&found, 0, sizeof found);
    if ((rc = dlpi_ranks_find(&found, &by, err)) != DLP_OK) return rc;
    if ((rc = dlpi_ranks_on_node(&found, by, err)) != DLP_OK) return rc;
    dlpi_ranks_cpus(&found, by);
    *out = found;
    return DLP_OK;
}

/* Warn, once in a process, if a launcher has started several ranks and the pipe's desc has no rank:
   each rank then reads all items. */
static void dlpi_ranks_warn(dlp_pipe *p) {
    static int32_t said;
    const dlpi_launcher *by;
    dlp_ranks found;
    if (p->ranks_given || dlpi_ranks_find(&found, &by, NULL) != DLP_OK) return;
    if (found.world_size < 2 || DLPI_XCHG_SEQ(&said, 1) != 0) return; /* N9 <-> N9 */
    dlpi_warn(p,
              "%s=%u, but world_size isn't set: every rank reads all items. Set rank and "
              "world_size (dlp_ranks_describe); world_size = 1 if that's meant",
              by->world, found.world_size);
}
