#pragma once
/* tests: unit/order/mixing */
#include "api/mixing.h"
/* ---- the record of a mix, which tables look at ---- */

typedef struct dlpi_mix_part {
    uint64_t first; /* index of the dataset's first item among those of all datasets */
    uint64_t items;
    uint64_t weight; /* its turns in a period */
    uint64_t key;    /* key of its shuffles */
} dlpi_mix_part;

struct dlp_mix {
    uint64_t period, samples, total, seed, id;
    uint32_t n;
    int32_t shuffle;
    uint32_t *schedule;  /* [period] dataset << DLPI_MIX_RANK_BITS | turns of it before */
    dlpi_mix_part *part; /* [n] */
};
