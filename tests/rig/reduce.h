/* An all-reduce among threads, for the tests of ranks: whoever waits for 30 s for the others gives
   up, and is told. */
#ifndef REDUCE_H
#define REDUCE_H

#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct reduce {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t ranks, came, turn;
    int64_t least, most, out_least, out_most;
    uint32_t calls, hung;
} reduce;

static inline void reduce_init(reduce *r, uint32_t ranks) {
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    r->ranks = ranks;
}

/* Returns INT64_MIN where the others did not come. */
static inline int64_t reduce_all(reduce *r, int64_t mine, int most) {
    struct timespec until;
    uint32_t turn;
    int64_t out;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    pthread_mutex_lock(&r->lock);
    turn = r->turn;
    r->calls += r->came == 0;
    r->least = r->came == 0 || mine < r->least ? mine : r->least;
    r->most = r->came == 0 || mine > r->most ? mine : r->most;
    if (++r->came == r->ranks) {
        r->out_least = r->least;
        r->out_most = r->most;
        r->came = 0;
        r->turn++;
        pthread_cond_broadcast(&r->moved);
    }
    while (r->turn == turn && !r->hung)
        if (pthread_cond_timedwait(&r->moved, &r->lock, &until) != 0) r->hung = 1;
    if (r->hung) pthread_cond_broadcast(&r->moved);
    out = r->hung ? INT64_MIN : most ? r->out_most : r->out_least;
    pthread_mutex_unlock(&r->lock);
    return out;
}

/* One of them gives up: nobody is to wait for it. */
static inline void reduce_stop(reduce *r) {
    pthread_mutex_lock(&r->lock);
    r->hung = 1;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

#endif
