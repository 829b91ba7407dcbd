/* Lock-free queues alone: four threads push to one. Each has a lane of its own, so none waits for
   another. When all have closed, pop returns DLP_END. dlp_spsc_* is one lane. With memory that
   processes share, and 1 instead of 0, processes push (examples/queues.c).

   cc -O2 -I. examples/snippets/queues.c dlpipe.o -lpthread */
#include "dlpipe.h"
#include <pthread.h>
#include <stdio.h>

enum { PRODUCERS = 4, EACH = 1000 };
static _Alignas(DLP_QUEUE_ALIGN) unsigned char mem[1 << 20];

static void *produce(void *user) {
    dlp_mpsc_tx tx; /* each producer */
    (void)user;
    if (dlp_mpsc_attach_tx(&tx, mem, sizeof mem, DLP_NONE) < 0) return NULL;
    for (uint64_t i = 0; i < EACH; i++) dlp_mpsc_push(&tx, &i, DLP_FOREVER);
    dlp_mpsc_close(&tx); /* done */
    return NULL;
}

int main(void) {
    uint64_t record, sum = 0, n = 0, from[PRODUCERS] = {0};
    uint32_t producer;
    pthread_t threads[PRODUCERS];
    dlp_spsc_rx lanes[PRODUCERS];
    dlp_mpsc_rx rx; /* the consumer */
    if (dlp_mpsc_init(mem, sizeof mem, sizeof record, 256, PRODUCERS, 0)) return 1;
    if (dlp_mpsc_attach_rx(&rx, lanes, PRODUCERS, mem, sizeof mem)) return 1;
    for (int i = 0; i < PRODUCERS; i++)
        if (pthread_create(&threads[i], NULL, produce, NULL)) return 1;
    while (dlp_mpsc_pop(&rx, &record, &producer, DLP_FOREVER) == DLP_OK) {
        if (record != from[producer]++) return 1; /* the order of each producer */
        sum += record;
        n++;
    }
    for (int i = 0; i < PRODUCERS; i++) pthread_join(threads[i], NULL);
    printf("%d records, the sum %d\n", (int)n, (int)sum);
    return n != PRODUCERS * EACH;
}
