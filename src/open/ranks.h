#pragma once
#include "core/fail.h"
/* A variable of the environment that is a number up to 2^31 - 1; -1: not set; -2: no number. */
static int64_t dlpi_env_number(const char *name) {
    const char *text = getenv(name);
    int64_t n = 0;
    if (text == NULL) return -1;
    if (text[0] == 0) return -2;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > INT32_MAX / 10) return -2;
        n = n * 10 + (*text - '0');
    }
    return n <= INT32_MAX ? n : -2;
}

DLPDEF int dlp_ranks_from_env(uint32_t *rank, uint32_t *world_size, dlp_error *err) {
    static const char *const names[][2] = {
        {"RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    };
    const size_t n = sizeof names / sizeof *names;
    if (rank == NULL || world_size == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, rank ? "world_size" : "rank", "it is NULL");
    for (size_t i = 0; i < n; i++) {
        int64_t r = dlpi_env_number(names[i][0]), w = dlpi_env_number(names[i][1]);
        bool slurm = i == n - 1; /* its batch scripts have a SLURM_PROCID, and are no rank */
        if ((r == -1 && w == -1) || (slurm && (r == -1 || w == -1))) continue;
        if (r < 0 || w < 1)
            return dlpi_error_set(
                err, DLP_ERR_ARG, names[i][r < 0 ? 0 : 1],
                "%s is %s, must be a number; it goes with %s", names[i][r < 0 ? 0 : 1],
                (r < 0 ? r : w) == -1 ? "not set" : "none", names[i][r < 0 ? 1 : 0]);
        if (r >= w)
            return dlpi_error_set(err, DLP_ERR_ARG, names[i][0],
                                  "%s is %d, must be below %s, which is %d", names[i][0], (int)r,
                                  names[i][1], (int)w);
        *rank = (uint32_t)r;
        *world_size = (uint32_t)w;
        return DLP_OK;
    }
    *rank = 0;
    *world_size = 1;
    return DLP_OK;
}
