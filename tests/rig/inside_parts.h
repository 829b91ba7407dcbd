/* needs: parts */
/* As inside.h, of inputs. */
#ifndef INSIDE_PARTS_H
#define INSIDE_PARTS_H

#include "inside.h"

INSIDE uint32_t inside_input_run(dlp_pipe *p); /* inputs of the longest run that a cell has now */
INSIDE uint64_t inside_input_guard(void);      /* bytes behind those of an input in its cell */
INSIDE uint64_t inside_list_seed(uint64_t seed, uint32_t l); /* of list l of a table */
/* Boxes of a stream; 0: there are none. */
INSIDE uint32_t inside_boxes_each(const dlp_pipe *p);
/* The least number of boxes of a stream for so many rows. */
INSIDE uint64_t inside_boxes_least(uint64_t items, uint64_t window, uint64_t rows);
/* To which of the streams each of n inputs belongs in the first pass. weights: [n], or NULL: they
   are dealt by number. Returns 0 if there is no memory. */
INSIDE int inside_found_streams(const uint64_t *weights, uint32_t n, uint32_t streams,
                                uint64_t seed, uint32_t *stream);

#ifdef DLPIPE_IMPLEMENTATION_DONE

INSIDE uint32_t inside_input_run(dlp_pipe *p) {
    uint32_t run = 0;
    for (uint32_t c = 0; c < dlpi_n_inputs(p); c++)
        if (dlpi_input_at(p, c)->run > run) run = dlpi_input_at(p, c)->run;
    return run;
}

INSIDE uint32_t inside_boxes_each(const dlp_pipe *p) { return dlpi_found_of(p)->boxes.each; }

INSIDE uint64_t inside_boxes_least(uint64_t items, uint64_t window, uint64_t rows) {
    return dlpi_boxes_least(items, window, rows);
}

INSIDE uint64_t inside_input_guard(void) { return DLPI_INPUT_GUARD; }

INSIDE uint64_t inside_list_seed(uint64_t seed, uint32_t l) { return dlpi_order_seed(seed, l); }

INSIDE int inside_found_streams(const uint64_t *weights, uint32_t n, uint32_t streams,
                                uint64_t seed, uint32_t *stream) {
    dlpi_found_plan q = {.n_inputs = n, .streams = streams, .seed = seed, .shuffle_inputs = true};
    size_t words = n + streams + 1 + (n + 1) / 2;
    uint64_t *memory = calloc(words, sizeof *memory);
    bool ok = memory != NULL;
    if (ok && weights != NULL) {
        memcpy(memory, weights, n * sizeof *weights);
        q.weights = memory;
        q.first = memory + n;
        q.members = (uint32_t *)(void *)(q.first + streams + 1);
        ok = dlpi_found_weights_bytes(&q) <= words * sizeof *memory && dlpi_found_deal(&q);
    }
    for (uint32_t s = 0; ok && s < streams; s++)
        for (uint64_t k = 0; k < dlpi_found_inputs(&q, s); k++) {
            uint64_t index = 0;
            if (weights == NULL) dlpi_found_indices(&q, 0, s, k, 1, &index);
            stream[weights ? q.members[q.first[s] + k] : index] = s;
        }
    free(memory);
    return ok;
}

#endif
#endif
