/* Rank and world size out of what launchers leave in the environment. */
#define _GNU_SOURCE
#include "../../dlpipe.h"

#include "../rig/pipe_rig.h"

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
                                  "SLURM_NTASKS"};

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

int main(void) {
    launcher__says__rank_and_world();
    batch_script_of_slurm__is_no_rank();
    nonsense__names_the_variable();
    return test_end("ranks_env");
}
