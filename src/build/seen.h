#pragma once
#include "stages/parts.h"
#include "stages/cache.h"
#include "stages/split.h"
/* ---- what kinds of stages show ---- */

/* Fill the figures that kinds of stages count by themselves. False: words say what can't be. */
static bool dlpi_seen_kinds(const dlpi_words *words, dlpi_seen *s) {
    static const struct {
        int32_t kind;
        bool (*seen)(const dlpi_words *words, dlpi_seen *s, int32_t stage);
    } kinds[] = {{DLP_STAGE_PARTS, dlpi_parts_seen},
                 {DLP_STAGE_CACHE, dlpi_cache_seen},
                 {DLP_STAGE_SPLIT, dlpi_chunks_seen}};
    memset(&s->figures, 0, sizeof s->figures);
    for (uint32_t i = 0; i < s->n_stages; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (s->stages[i].kind == kinds[k].kind && !kinds[k].seen(words, s, (int32_t)i))
                return false;
    return true;
}

/* All that a live pipe shows. */
static void dlpi_seen_all(const dlp_pipe *p, dlpi_seen *s) {
    dlpi_record rec[DLPI_REC_COUNT];
    dlpi_words words = dlpi_words_live(p, rec);
    dlpi_seen_pipe(p, s);
    dlpi_seen_kinds(&words, s); /* true: its records are its own */
}
