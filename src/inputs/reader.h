#pragma once
/* tests: system/source/push, system/source/push_plan, system/source/push_makers */
#include "inputs/dataset.h"
#include "observe/seen.h"
/* ---- the reader of a stream, as of a push: the one worker of a stage ---- */

/* What a reader knows of its writers, in the region. The reader writes it, for observers. */
typedef struct dlpi_reader_words {
    uint64_t alone;          /* 1: the reader waits, and each living writer has sent its end */
    uint64_t ended, writers; /* ends read so far; number of writers, 0: this is no stream */
    uint64_t last;           /* number of a writer that is gone without an end; 0: none */
    uint64_t attached;       /* writers that were attached when the reader waited last */
} dlpi_reader_words;

/* Numbers of the areas of that stage in the region. */
enum { DLPI_READER_WORDS = 1, DLPI_READER_ROWS = DLPI_OWN_HIDDEN };

/* Check that a stage which reads pushed items has one reader, a thread or the consumer, that reads
   them one after the other, once. Returns 0 or a DLP_ERR code. */
static int dlpi_reader_alone(dlp_pipe *p, const dlpi_stage *st) {
    const char *words = "0 or 1: pushed items have one reader";
    dlpi_within(p, st->name, "num_workers", st->w.num_workers, 0, 1, words);
    dlpi_within(p, st->name, "placement", st->w.placement, DLP_PLACE_THREADS, DLP_PLACE_THREADS,
                "DLP_PLACE_THREADS: a thread, or next, reads pushed items");
    dlpi_within(p, st->name, "fetcher", st->ops->row_by_row, 0, 0,
                "DLP_FETCH_SEQUENTIAL: pushed items come one after the other");
    dlpi_within(p, "", "epochs", p->d.epochs, 0, 1, "0 or 1: pushed items come once");
    return p->err.code;
}

/* Copy, for an observer, what the reader of a push says of its writers (dlpi_reader_words). Returns
   false if the words of the region are not whole. */
DLPI_COLD static bool dlpi_reader_seen(const dlpi_words *words, dlpi_seen *s, int32_t stage) {
    const int id = DLPI_OWN(stage, DLPI_READER_WORDS);
    dlp_stage_stats *to = &s->figures.stages[stage];
    dlpi_reader_words said = {0, 0, 0, 0, 0};
    if (words->areas[id].count == 0) return true;
    if (!dlpi_words_copy(words, id, 0, 0, &said, sizeof said)) return false;
    memcpy(to->own, &said, sizeof to->own);
    to->producers = (uint32_t)said.attached;
    return true;
}

/* Note how many writers the reader of `d` has. They want cores, too. So if threads and writers are
   more than the CPUs, waiting threads only yield. */
static void dlpi_reader_live(dlp_pipe *p, const dlpi_stage *st, const dlp_dataset *d) {
    uint64_t writers = dlpi_reader_wired(d) ? d->reader->writers(d->user) : 1;
    dlpi_reader_words *words = dlpi_area_if(p, DLPI_OWN(st->id, DLPI_READER_WORDS));
    if (words != NULL) DLPI_STORE_RLX(&words->writers, writers); /* for people */
    p->wait.only_yields = writers + (uint64_t)p->wait.threads > (uint64_t)p->cpus;
}
