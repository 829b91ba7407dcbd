/* The pipe end to end: same bytes in the same order whatever the workers, dispatch and stages. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include "pipe_common.h"

static void run_reference(const test_shape *shape, uint64_t *sum) {
    test_shape inline_shape = *shape;
    inline_shape.workers = 0;
    inline_shape.dispatch = 0;
    inline_shape.sampler_threaded = 0;
    *sum = test_run(&inline_shape);
}

static void pipe__workers_and_dispatch__same_bytes(void) {
    static const int workers[] = {0, 1, 2, 7, 16};
    for (int order = 0; order <= DLP_ORDER_FUNCTION; order++)
        for (int last = 0; last < 3; last++) {
            test_shape shape = test_shape_default();
            uint64_t want;
            shape.order = order;
            shape.last = last;
            run_reference(&shape, &want);
            for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
                for (int dispatch = 0; dispatch < 2; dispatch++) {
                    shape.workers = workers[w];
                    shape.dispatch = dispatch;
                    shape.sampler_threaded = (int)(w & 1);
                    CHECK(test_run(&shape) == want);
                }
        }
}

int main(void) {
    pipe__workers_and_dispatch__same_bytes();
    return test_end("pipe_basic");
}
