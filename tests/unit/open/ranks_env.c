/* Rank and world size, place and CPUs on the node, out of what launchers leave in the environment;
   and what start says to a pipe that was told none of it. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"

#include <sched.h>
#include <sys/wait.h>

static const char *const all[] = {"RANK",
                                  "WORLD_SIZE",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "MV2_COMM_WORLD_RANK",
                                  "MV2_COMM_WORLD_SIZE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "SLURM_PROCID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_NTASKS",
                                  "TORCHELASTIC_RUN_ID",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "MV2_COMM_WORLD_LOCAL_RANK",
                                  "MV2_COMM_WORLD_LOCAL_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_TASKS_PER_NODE",
                                  "SLURM_NTASKS_PER_NODE"};

static uint32_t rank, world;
static dlp_error err;

/* With these variables and no others: "NAME=value NAME=value". */
static int with(const char *variables) {
    char copy[256], *rest = copy, *one;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
    snprintf(copy, sizeof copy, "%s", variables);
    while ((one = strsep(&rest, " ")) != NULL) {
        char *value = strchr(one, '=');
        if (value == NULL) continue;
        *value = 0;
        setenv(one, value + 1, 1);
    }
    rank = world = 77;
    memset(&err, 0, sizeof err);
    return dlp_ranks_from_env(&rank, &world, &err);
}

static void launcher__says__rank_and_world(void) {
    CHECK(with("") == DLP_OK && rank == 0 && world == 1);
    CHECK(with("RANK=3 WORLD_SIZE=8") == DLP_OK && rank == 3 && world == 8);
    CHECK(with("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4") == DLP_OK && !rank && world == 4);
    CHECK(with("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2") == DLP_OK && rank == 1 && world == 2);
    CHECK(with("PMI_RANK=2 PMI_SIZE=3") == DLP_OK && rank == 2 && world == 3);
    CHECK(with("SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6") == DLP_OK && rank == 5 && world == 6);
    CHECK(with("RANK=1 WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=9") == DLP_OK && rank == 1 && world == 2);
    CHECK(with("RANK=2147483646 WORLD_SIZE=2147483647") == DLP_OK && world == 2147483647);
}

static void batch_script_of_slurm__is_no_rank(void) {
    CHECK(with("SLURM_PROCID=0 SLURM_NTASKS=4") == DLP_OK && rank == 0 && world == 1);
}

static int refused(const char *variables, const char *field) {
    return with(variables) == DLP_ERR_ARG && rank == 77 && world == 77 &&
           strcmp(err.field, field) == 0 && strstr(err.message, field) != NULL;
}

static void nonsense__names_the_variable(void) {
    CHECK(refused("RANK=1", "WORLD_SIZE"));
    CHECK(refused("WORLD_SIZE=4", "RANK"));
    CHECK(refused("RANK=4 WORLD_SIZE=4", "RANK"));
    CHECK(refused("RANK=x WORLD_SIZE=4", "RANK"));
    CHECK(refused("RANK= WORLD_SIZE=4", "RANK"));
    CHECK(refused("RANK=0 WORLD_SIZE=0", "WORLD_SIZE"));
    CHECK(refused("RANK=-1 WORLD_SIZE=4", "RANK"));
    CHECK(refused("RANK=1 WORLD_SIZE=2147483648", "WORLD_SIZE"));
    CHECK(refused("RANK=1 WORLD_SIZE=99999999999999999999", "WORLD_SIZE"));
    CHECK(refused("PMI_RANK=1 PMI_SIZE=two", "PMI_SIZE"));
    CHECK(with("RANK=9 WORLD_SIZE=4") == DLP_ERR_ARG && dlp_ranks_from_env(NULL, &world, NULL) < 0);
    CHECK(dlp_ranks_from_env(&rank, NULL, &err) == DLP_ERR_ARG);
    CHECK(strcmp(err.field, "world_size") == 0);
}

/* ---- on this node ---- */

static dlp_ranks who;

static int node_with(const char *variables) {
    with(variables);
    memset(&who, 77, sizeof who);
    memset(&err, 0, sizeof err);
    return dlp_ranks_describe(&who, &err);
}

static int node_says(const char *variables, uint32_t local, uint32_t of) {
    return node_with(variables) == DLP_OK && who.local_rank == local &&
           who.local_world_size == of && who.rank == rank && who.world_size == world &&
           who.cores >= 1 && who.cores <= who.n_cpus;
}

static void launcher__says__local_rank(void) {
    CHECK(node_says("", 0, 1));
    CHECK(node_says("RANK=7 WORLD_SIZE=8 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4", 3, 4));
    CHECK(node_says("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
                    "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                    0, 2));
    CHECK(node_says("MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 "
                    "MV2_COMM_WORLD_LOCAL_SIZE=2",
                    1, 2));
    CHECK(node_says("PMI_RANK=5 PMI_SIZE=6 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3", 2, 3));
    CHECK(node_says("RANK=1 WORLD_SIZE=2", 0, 1));
    CHECK(node_says("LOCAL_RANK=3 LOCAL_WORLD_SIZE=4", 0, 1)); /* no rank: no launcher */
}

#define SRUN "SLURM_PROCID=4 SLURM_STEP_NUM_TASKS=9 "

static void slurm__lists_tasks_of_nodes(void) {
    CHECK(node_says(SRUN "SLURM_LOCALID=3 SLURM_STEP_TASKS_PER_NODE=4", 3, 4));
    CHECK(node_says(SRUN "SLURM_LOCALID=3 SLURM_STEP_TASKS_PER_NODE=4(x2)", 3, 4));
    CHECK(node_says(SRUN "SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=4(x2),1", 0, 1));
    CHECK(node_says(SRUN "SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=4(x2),1", 1, 4));
    CHECK(node_says(SRUN "SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=3", 1, 3));
    CHECK(
        node_says(SRUN "SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2 SLURM_TASKS_PER_NODE=8", 1, 2));
    /* srun --mpi=pmi2, and RANK by hand, say nothing of the node themselves */
    CHECK(node_says("PMI_RANK=4 PMI_SIZE=9 " SRUN "SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=3(x3)",
                    1, 3));
    CHECK(node_says("RANK=4 WORLD_SIZE=9 " SRUN "SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=3(x3)",
                    1, 3));
    CHECK(node_says("RANK=1 WORLD_SIZE=2 " SRUN "SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=3(x3)",
                    0, 1));
}

static int node_refused(const char *variables, const char *field) {
    int rc = node_with(variables);
    return rc == DLP_ERR_ARG && who.rank == 0x4d4d4d4d && who.cores == 0x4d4d4d4d &&
           strcmp(err.field, field) == 0 && strstr(err.message, field) != NULL;
}

#define TORCH "RANK=1 WORLD_SIZE=4 "

static void nonsense_of_the_node__names_the_variable(void) {
    CHECK(node_refused("RANK=4 WORLD_SIZE=4", "RANK"));
    CHECK(node_refused(TORCH "LOCAL_RANK=1", "LOCAL_WORLD_SIZE"));
    CHECK(node_refused(TORCH "LOCAL_WORLD_SIZE=1", "LOCAL_RANK"));
    CHECK(node_refused(TORCH "LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK"));
    CHECK(node_refused(TORCH "LOCAL_RANK=-1 LOCAL_WORLD_SIZE=2", "LOCAL_RANK"));
    CHECK(node_refused(TORCH "LOCAL_RANK= LOCAL_WORLD_SIZE=2", "LOCAL_RANK"));
    CHECK(node_refused(TORCH "LOCAL_RANK=0 LOCAL_WORLD_SIZE=0", "LOCAL_WORLD_SIZE"));
    CHECK(node_refused(TORCH "LOCAL_RANK=0 LOCAL_WORLD_SIZE=2147483648", "LOCAL_WORLD_SIZE"));
    CHECK(node_refused(TORCH "LOCAL_RANK=0 LOCAL_WORLD_SIZE=5", "LOCAL_WORLD_SIZE"));
    CHECK(node_refused("PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2x",
                       "MPI_LOCALNRANKS"));
    static const char *const lists[] = {"4,",          ",4", "4(x2",   "4(x0)", "4(2)",
                                        "0",           "x",  "4(x2)5", "-4",    "4(x99999999999)",
                                        "99999999999", "10"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char text[200];
        snprintf(text, sizeof text, SRUN "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=%s", lists[i]);
        CHECK(node_refused(text, "SLURM_STEP_TASKS_PER_NODE"));
    }
    CHECK(node_refused(SRUN "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=4(x2),1",
                       "SLURM_STEP_TASKS_PER_NODE")); /* of which node? */
    CHECK(node_refused(SRUN "SLURM_LOCALID=0 SLURM_NODEID=3 SLURM_STEP_TASKS_PER_NODE=4(x2),1",
                       "SLURM_STEP_TASKS_PER_NODE"));
    CHECK(node_refused(SRUN "SLURM_LOCALID=0 SLURM_NODEID=x SLURM_STEP_TASKS_PER_NODE=4",
                       "SLURM_STEP_TASKS_PER_NODE"));
    CHECK(node_refused(SRUN "SLURM_LOCALID=0", "SLURM_STEP_TASKS_PER_NODE"));
    CHECK(dlp_ranks_describe(NULL, &err) == DLP_ERR_ARG && strcmp(err.field, "out") == 0);
}

#define OPEN_MPI "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4"

static void launchers__that_contradict__are_refused(void) {
    CHECK(refused("RANK=0 WORLD_SIZE=4 " OPEN_MPI, "RANK"));
    CHECK(strstr(err.message, "OMPI_COMM_WORLD_RANK") != NULL);
    CHECK(refused("RANK=0 WORLD_SIZE=9 " SRUN, "RANK"));
    CHECK(refused(OPEN_MPI " PMI_RANK=0 PMI_SIZE=4", "OMPI_COMM_WORLD_RANK"));
    CHECK(with("RANK=2 WORLD_SIZE=4 " OPEN_MPI) == DLP_OK && rank == 2);
    /* torchrun, started by mpirun for each node, numbers its ranks as they come */
    CHECK(with("TORCHELASTIC_RUN_ID=x RANK=0 WORLD_SIZE=4 " OPEN_MPI) == DLP_OK && rank == 0);
    CHECK(with("RANK=6 WORLD_SIZE=8 " OPEN_MPI) == DLP_OK && rank == 6 && world == 8);
    CHECK(with(OPEN_MPI " SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4") == DLP_OK && rank == 2);
}

/* ---- CPUs ---- */

/* In a process of its own, with a mask of its own where `confine` is the number of a CPU, what the
   ranks have: the sum of their CPUs, each counted once. */
static int cpus_of(const cpu_set_t *set, int ranks, int confine) {
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        cpu_set_t one, seen;
        int n = CPU_COUNT(set), before = test_failures;
        CPU_ZERO(&seen);
        CPU_ZERO(&one);
        if (confine >= 0) {
            CPU_SET((size_t)confine, &one);
            CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        }
        for (int r = 0; r < ranks; r++) {
            char text[120];
            snprintf(text, sizeof text, "RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d",
                     r, ranks, r, ranks);
            CHECK(node_with(text) == DLP_OK && who.confined == (confine >= 0));
            for (int i = 0; i < who.n_cpus; i++) {
                CHECK(CPU_ISSET((size_t)who.cpus[i], set));
                CHECK(confine >= 0 || n < ranks || !CPU_ISSET((size_t)who.cpus[i], &seen));
                CPU_SET((size_t)who.cpus[i], &seen);
            }
            CHECK(who.cores >= 1 && who.cores <= who.n_cpus);
            CHECK(confine >= 0
                      ? who.n_cpus == 1 && who.cpus[0] == confine
                      : who.n_cpus == (n < ranks ? 1 : (r + 1) * n / ranks - r * n / ranks));
        }
        CHECK(CPU_EQUAL(&seen, confine >= 0 ? &one : set));
        _exit(test_failures != before);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static void cpus__are_shared_out__or_the_ranks_own(void) {
    cpu_set_t set;
    int first = 0;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    while (!CPU_ISSET((size_t)first, &set)) first++;
    for (int ranks = 1; ranks <= 9; ranks++) CHECK(cpus_of(&set, ranks, -1));
    if (CPU_COUNT(&set) > 1) CHECK(cpus_of(&set, 3, first));
}

/* A node of 32 in two sockets of 16, of which each has two of four ranks (Open MPI's way with more
   than two), or a core for each of two. */
static void ranks_of_a_socket__share_its_cpus(void) {
    int32_t numbers[DLP_MAX_CPUS];
    for (int r = 0; r < 4; r++) {
        dlp_ranks to = {.local_rank = (uint32_t)r, .local_world_size = 4};
        for (int i = 0; i < 16; i++) numbers[i] = r % 2 * 16 + i;
        inside_cpus_own(&to, numbers, 16, 32);
        CHECK(to.confined && to.n_cpus == 16 && to.cores == 8);
        for (int i = 0; i < 16; i++) CHECK(to.cpus[i] == numbers[i]);
    }
    dlp_ranks two = {.local_rank = 1, .local_world_size = 2};
    inside_cpus_own(&two, numbers, 1, 32);
    CHECK(two.n_cpus == 1 && two.cores == 1 && two.cpus[0] == numbers[0]);
    dlp_ranks crowd = {.local_rank = 8, .local_world_size = 9};
    inside_cpus_own(&crowd, numbers, 4, 4);
    CHECK(crowd.n_cpus == 4 && crowd.cores == 1);
}

/* ---- what start says ---- */

static int said;
static char words[200];

static void hear(void *user, const char *message) {
    (void)user;
    if (strstr(message, "world_size") == NULL) return;
    said++;
    snprintf(words, sizeof words, "%s", message);
}

static void start_one(uint32_t world_size) {
    rig r;
    dlp_pipe *p;
    rig_init(&r, 12, 4);
    r.pipe.log = hear;
    r.pipe.world_size = world_size;
    if (rig_open(&r, &p) == DLP_OK) CHECK(dlp_pipe_close(p) == DLP_OK);
}

/* In a process that has said nothing yet: how often, after two pipes. */
static int told(const char *variables, uint32_t world_size) {
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        with(variables);
        start_one(world_size);
        if (said == 1 && (strstr(words, "OMPI_COMM_WORLD_SIZE=4,") == NULL ||
                          strstr(words, "world_size = 1 if that's meant") == NULL))
            said = 9;
        start_one(world_size);
        _exit(said);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void start__in_one_of_many__warns_once(void) {
    CHECK(told(OPEN_MPI, 0) == 1);
    CHECK(told(OPEN_MPI, 1) == 0); /* "I know" */
    CHECK(told(OPEN_MPI, 2) == 0);
    CHECK(told("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", 0) == 0);
    CHECK(told("SLURM_PROCID=0 SLURM_NTASKS=4", 0) == 0);
    CHECK(told("RANK=x WORLD_SIZE=4", 0) == 0);
    CHECK(told("", 0) == 0);
}

int main(void) {
    launcher__says__rank_and_world();
    batch_script_of_slurm__is_no_rank();
    nonsense__names_the_variable();
    launcher__says__local_rank();
    slurm__lists_tasks_of_nodes();
    nonsense_of_the_node__names_the_variable();
    launchers__that_contradict__are_refused();
    cpus__are_shared_out__or_the_ranks_own();
    ranks_of_a_socket__share_its_cpus();
    start__in_one_of_many__warns_once();
    return test_end("ranks_env");
}
