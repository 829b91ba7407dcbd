/* Waiting: time-outs, wake-ups, who is woken when, what is not called when nobody sleeps, in
   threads and processes, with the heavy barrier and without. System calls are counted and can be
   made to fail. Compiled once more to have membarrier refused throughout
   (queue_wait_nomembarrier.c). */
/* own: hook: its system calls are counted */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <sys/syscall.h>
static long counted_syscall(long number, ...);
#define syscall counted_syscall
#ifdef DLPIPE_PORTABLE_WAIT /* the calls that are futexes then */
static int counted_sleep(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until);
static int counted_wake(pthread_cond_t *c);
#define pthread_cond_timedwait counted_sleep
#define pthread_cond_signal counted_wake
#endif

#define DLPIPE_IMPLEMENTATION
#include "../../../dlpipe.h"
#include "../../rig/queue_check.h"
#ifdef DLPIPE_PORTABLE_WAIT
#include "../../rig/word_wait.h"
#endif

#undef syscall
#undef pthread_cond_timedwait
#undef pthread_cond_signal
#ifndef MEMBARRIER_REFUSED
#define MEMBARRIER_REFUSED 0
#endif
static int n_wakes, n_sleeps, n_barriers, refuse_membarrier = MEMBARRIER_REFUSED;

static long counted_syscall(long number, ...) {
    va_list va;
    long a[6];
    va_start(va, number);
    int n = number == SYS_membarrier ? 3 : 6;
    for (int i = 0; i < n; i++) {
        if (number == SYS_futex && (i == 0 || i == 3 || i == 4))
            a[i] = (long)va_arg(va, void *);
        else if (number == SYS_futex && (i == 2 || i == 5))
            a[i] = (long)va_arg(va, unsigned);
        else
            a[i] = va_arg(va, int);
    }
    va_end(va);
    if (number == SYS_membarrier) {
        DLPI_ADD_SEQ(&n_barriers, 1);
        if (DLPI_LOAD_SEQ(&refuse_membarrier)) return errno = ENOSYS, -1;
        return syscall(number, a[0], a[1], a[2]);
    }
    DLPI_ADD_SEQ((a[1] & 127) == 10 ? &n_wakes : &n_sleeps, 1);
    return syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#ifdef DLPIPE_PORTABLE_WAIT
static int counted_sleep(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until) {
    DLPI_ADD_SEQ(&n_sleeps, 1);
    return pthread_cond_timedwait(c, m, until);
}

static int counted_wake(pthread_cond_t *c) {
    DLPI_ADD_SEQ(&n_wakes, 1);
    return pthread_cond_signal(c);
}
#endif

static uint64_t work = 1;

static double seconds_since(uint64_t begin_ns) { return (double)(dlpi_now_ns() - begin_ns) * 1e-9; }

typedef struct lane {
    guarded map;
    uint64_t bytes;
    dlp_spsc *spsc;
    dlp_spsc_tx tx;
    dlp_spsc_rx rx;
} lane;

static void lane_open(lane *q, uint64_t capacity, int shared) {
    q->bytes = dlp_spsc_bytes(8, capacity);
    q->map = guarded_map(q->bytes, shared);
    q->spsc = (dlp_spsc *)(void *)q->map.mem;
    CHECK(dlp_spsc_init(q->map.mem, q->bytes, 8, capacity, shared) == DLP_OK);
    CHECK(dlp_spsc_attach_tx(&q->tx, q->map.mem, q->bytes) == DLP_OK);
    CHECK(dlp_spsc_attach_rx(&q->rx, q->map.mem, q->bytes) == DLP_OK);
}

static void lane_close(lane *q) { guarded_unmap(&q->map); }

/* Wait until a side has gone to bed. */
static void until_asleep(uint32_t *wake_word) {
    uint64_t begin = dlpi_now_ns();
    while (!(DLPI_LOAD_SEQ(wake_word) & DLPI_WAKE_SLEEPER)) {
        if (seconds_since(begin) > 20) {
            CHECK(seconds_since(begin) <= 20); /* the sleeper never set its bit */
            return;
        }
        usleep(200);
    }
    usleep(2000);
}

/* Not too early, and not late? */
static int in_time(uint64_t begin_ns, double least, double most) {
    double took = seconds_since(begin_ns);
    CHECK(took >= least);
    return took < most;
}

static int times_out_in_time(int shared) {
    lane q;
    uint64_t value = 3;
    int ok = 1;
    lane_open(&q, 2, shared);
    uint64_t begin = dlpi_now_ns();
    CHECK(dlp_spsc_pop(&q.rx, &value, DLP_NOWAIT) == DLP_TIMEOUT);
    ok &= in_time(begin, 0, 0.05);
    begin = dlpi_now_ns();
    CHECK(dlp_spsc_pop(&q.rx, &value, 30) == DLP_TIMEOUT);
    ok &= in_time(begin, 0.03, 2);
    begin = dlpi_now_ns();
    CHECK(dlp_spsc_wait_rx(&q.rx, 230) == DLP_TIMEOUT); /* longer than one sleep */
    ok &= in_time(begin, 0.23, 3);
    CHECK(value == 3);
    CHECK(dlp_spsc_push(&q.tx, &value, DLP_NOWAIT) == DLP_OK);
    CHECK(dlp_spsc_wait_rx(&q.rx, DLP_NOWAIT) == DLP_OK);
    CHECK(dlp_spsc_push(&q.tx, &value, 5) == DLP_OK);
    begin = dlpi_now_ns();
    CHECK(dlp_spsc_push(&q.tx, &value, 30) == DLP_TIMEOUT);
    ok &= in_time(begin, 0.03, 2);
    CHECK(dlp_spsc_push(&q.tx, &value, DLP_NOWAIT) == DLP_TIMEOUT);
    CHECK(!(DLPI_LOAD_SEQ(&q.spsc->producer_wake) & DLPI_WAKE_SLEEPER));
    CHECK(!(DLPI_LOAD_SEQ(&q.spsc->consumer_wake) & DLPI_WAKE_SLEEPER));
    lane_close(&q);
    return ok;
}

static void wait__nothing_comes__times_out_in_time(void) {
    for (int shared = 0; shared < 2; shared++) CHECK_ONE_OF_5(times_out_in_time(shared));
}

static void burst__part_fits__rest_times_out(void) {
    lane q;
    uint64_t in[6] = {0, 1, 2, 3, 4, 5}, out[6];
    lane_open(&q, 4, 0);
    CHECK(dlp_spsc_push_burst(&q.tx, in, 6, 20) == 4);
    CHECK(dlp_spsc_push_burst(&q.tx, in, 6, DLP_NOWAIT) == 0);
    CHECK(dlp_spsc_pop_burst(&q.rx, out, 6, 20) == 4);
    CHECK(dlp_spsc_pop_burst(&q.rx, out, 6, 20) == 0);
    CHECK(dlp_spsc_pop_burst(&q.rx, out, 0, DLP_FOREVER) == 0);
    CHECK(dlp_spsc_push_burst(&q.tx, in, 0, DLP_FOREVER) == 0);
    lane_close(&q);
}

static void *pop_one(void *arg) {
    uint64_t value = 0;
    lane *q = (lane *)arg;
    int r = dlp_spsc_pop(&q->rx, &value, 20000);
    return r == DLP_OK && value == 77 ? arg : NULL;
}

/* By the wake word, and not because the sleep was over, which it is when it has lasted 100 ms? */
static int woken_at_once(lane *q) {
    uint64_t value = 77;
    pthread_t thread;
    void *ok;
    CHECK(pthread_create(&thread, NULL, pop_one, q) == 0);
    until_asleep(&q->spsc->consumer_wake);
    uint64_t begin = dlpi_now_ns();
    CHECK(dlp_spsc_push(&q->tx, &value, 1) == DLP_OK);
    int woken = !(DLPI_LOAD_SEQ(&q->spsc->consumer_wake) & DLPI_WAKE_SLEEPER);
    pthread_join(thread, &ok);
    CHECK(ok);
    return woken && seconds_since(begin) < 0.08;
}

static void sleeper__record_comes__woken_at_once(void) {
    lane q;
    lane_open(&q, 64, 0);
    for (int i = 0; i < 5; i++) CHECK_ONE_OF_5(woken_at_once(&q));
    lane_close(&q);
}

static void *pop_end(void *arg) {
    uint64_t value = 0;
    return dlp_spsc_pop(&((lane *)arg)->rx, &value, 20000) == DLP_END ? arg : NULL;
}

static int closed_wakes_at_once(void) {
    lane q;
    pthread_t thread;
    void *ok;
    lane_open(&q, 64, 0);
    CHECK(pthread_create(&thread, NULL, pop_end, &q) == 0);
    until_asleep(&q.spsc->consumer_wake);
    uint64_t begin = dlpi_now_ns();
    dlp_spsc_close(&q.tx);
    int woken = !(DLPI_LOAD_SEQ(&q.spsc->consumer_wake) & DLPI_WAKE_SLEEPER);
    pthread_join(thread, &ok);
    CHECK(ok);
    double took = seconds_since(begin);
    lane_close(&q);
    return woken && took < 0.08;
}

static void sleeper__lane_closed__woken_at_once(void) {
    for (int i = 0; i < 3; i++) CHECK_ONE_OF_5(closed_wakes_at_once());
}

static void sleeper__other_process_pushes__woken(void) {
    lane q;
    uint64_t value = 77;
    lane_open(&q, 64, 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dlp_spsc_rx rx;
        uint64_t got = 0, begin = dlpi_now_ns();
        int ok = dlp_spsc_attach_rx(&rx, q.map.mem, q.bytes) == DLP_OK;
        while (ok && seconds_since(begin) < 20) {
            int r = dlp_spsc_pop(&rx, &got, 5000);
            if (r == DLP_OK) _exit(got == 77 ? 0 : 2);
        }
        _exit(3);
    }
    until_asleep(&q.spsc->consumer_wake);
    CHECK(dlp_spsc_push(&q.tx, &value, 1) == DLP_OK);
    CHECK(child_status(pid) == 0);
    lane_close(&q);
}

static void *push_one(void *arg) {
    uint64_t value = 77;
    lane *q = (lane *)arg;
    return dlp_spsc_push(&q->tx, &value, 20000) == DLP_OK ? arg : NULL;
}

/* Is a full lane's producer woken when half the ring is free, and not before? It is
   not if the producer looked by itself meanwhile. */
static int woken_when_half_is_free(void) {
    uint64_t value = 1;
    lane q;
    pthread_t thread;
    void *ok;
    lane_open(&q, 64, 0);
    for (int i = 0; i < 64; i++) CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    CHECK(pthread_create(&thread, NULL, push_one, &q) == 0);
    until_asleep(&q.spsc->producer_wake);
    for (int i = 0; i < 31; i++) CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK);
    CHECK(q.spsc->head == 24);
    int sleeps = (DLPI_LOAD_SEQ(&q.spsc->producer_wake) & DLPI_WAKE_SLEEPER) != 0;
    CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK);
    int woken = !(DLPI_LOAD_SEQ(&q.spsc->producer_wake) & DLPI_WAKE_SLEEPER);
    pthread_join(thread, &ok);
    CHECK(ok);
    lane_close(&q);
    return sleeps && woken;
}

static void producer_asleep__half_is_free__woken_then(void) {
    CHECK_ONE_OF_5(woken_when_half_is_free());
}

static int woken_in_tiny_ring(uint64_t capacity) {
    uint64_t value = 1;
    lane q;
    pthread_t thread;
    void *ok;
    lane_open(&q, capacity, 0);
    for (uint64_t i = 0; i < capacity; i++) CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    CHECK(pthread_create(&thread, NULL, push_one, &q) == 0);
    until_asleep(&q.spsc->producer_wake);
    for (uint64_t i = 0; i < (capacity + 1) / 2; i++)
        CHECK(dlp_spsc_try_pop(&q.rx, &value) == DLP_OK);
    int woken = !(DLPI_LOAD_SEQ(&q.spsc->producer_wake) & DLPI_WAKE_SLEEPER);
    pthread_join(thread, &ok);
    CHECK(ok);
    lane_close(&q);
    return woken;
}

static void producer_asleep__tiny_ring__woken(void) {
    for (uint64_t capacity = 1; capacity <= 4; capacity *= 2)
        CHECK_ONE_OF_5(woken_in_tiny_ring(capacity));
}

static int looks_by_itself(void) {
    lane q;
    pthread_t thread;
    void *ok;
    lane_open(&q, 8, 0);
    CHECK(pthread_create(&thread, NULL, pop_one, &q) == 0);
    until_asleep(&q.spsc->consumer_wake);
    uint64_t begin = dlpi_now_ns(), value = 77;
    memcpy(q.tx.slots, &value, 8);
    DLPI_STORE_REL(&q.spsc->tail, (uint64_t)1);
    pthread_join(thread, &ok);
    CHECK(ok);
    double took = seconds_since(begin);
    lane_close(&q);
    return took < 1;
}

/* A waker that dies between its store and the wake word: the sleep ends by itself. */
static void sleeper__wake_word_never_woken__looks_after_100_ms(void) {
    CHECK_ONE_OF_5(looks_by_itself());
}

#if !MEMBARRIER_REFUSED
static void nobody_sleeps__push_and_pop__no_system_call(void) {
    uint64_t value = 1;
    lane q;
    lane_open(&q, 16, 0);
    int wakes = n_wakes, sleeps = n_sleeps, barriers = n_barriers;
    for (int i = 0; i < 1000; i++) {
        CHECK(dlp_spsc_push(&q.tx, &value, 0) == DLP_OK);
        CHECK(dlp_spsc_pop(&q.rx, &value, 0) == DLP_OK);
    }
    CHECK(n_wakes == wakes && n_sleeps == sleeps && n_barriers == barriers);
    lane_close(&q);
}
#endif

static void one_sleeper__many_pushes__one_wake(void) {
    uint64_t value = 77;
    lane q;
    pthread_t thread;
    void *ok;
    lane_open(&q, 4096, 0);
    CHECK(pthread_create(&thread, NULL, pop_one, &q) == 0);
    until_asleep(&q.spsc->consumer_wake);
    int wakes = DLPI_LOAD_SEQ(&n_wakes);
    for (int i = 0; i < 1000; i++) CHECK(dlp_spsc_try_push(&q.tx, &value) == DLP_OK);
    int n = DLPI_LOAD_SEQ(&n_wakes) - wakes; /* 0 if it was just between two sleeps */
    CHECK(n <= 1);
    pthread_join(thread, &ok);
    CHECK(ok);
    lane_close(&q);
}

/* As many sleeps as 100 ms go into half a second? Fewer if one of them got long. */
static int few_sleeps(void) {
    lane q;
    uint64_t value;
    lane_open(&q, 8, 0);
    int sleeps = n_sleeps;
    CHECK(dlp_spsc_pop(&q.rx, &value, 500) == DLP_TIMEOUT);
    sleeps = n_sleeps - sleeps;
    lane_close(&q);
    CHECK(sleeps <= 8);
    return sleeps >= 5;
}

static void blocked__half_a_second__few_system_calls(void) {
    int ok = few_sleeps();
    for (int tries = 1; tries < 20 && !ok; tries++) ok = few_sleeps();
    CHECK(ok);
}

static void membarrier__refused__both_waiters_say_rmw_and_work(void) {
    DLPI_STORE_SEQ(&refuse_membarrier, 1);
    lane q;
    lane_open(&q, 64, 0);
    CHECK(DLPI_LOAD_SEQ(&q.spsc->consumer_wake) == DLPI_WAKE_RMW &&
          DLPI_LOAD_SEQ(&q.spsc->producer_wake) == DLPI_WAKE_RMW);
    lane_close(&q);
    sleeper__record_comes__woken_at_once();
    producer_asleep__half_is_free__woken_then();
    DLPI_STORE_SEQ(&refuse_membarrier, MEMBARRIER_REFUSED);
    lane_open(&q, 64, 0);
#if !MEMBARRIER_REFUSED
    CHECK(DLPI_LOAD_SEQ(&q.spsc->consumer_wake) == 0 && DLPI_LOAD_SEQ(&q.spsc->producer_wake) == 0);
    DLPI_STORE_SEQ(&refuse_membarrier, 1); /* from now on: found out when going to sleep */
    uint64_t value;
    for (int i = 0; i < 1000 && DLPI_LOAD_SEQ(&q.spsc->consumer_wake) == 0; i++)
        CHECK(dlp_spsc_pop(&q.rx, &value, 5) == DLP_TIMEOUT); /* one may end before it sleeps */
    CHECK(DLPI_LOAD_SEQ(&q.spsc->consumer_wake) == DLPI_WAKE_RMW &&
          DLPI_LOAD_SEQ(&q.spsc->producer_wake) == 0);
    DLPI_STORE_SEQ(&refuse_membarrier, 0);
#endif
    lane_close(&q);
}

/* ---- stress: sleeps as often as it can; a lost wake-up shows as time ---- */

typedef struct stress {
    void *mem;
    uint64_t bytes, records;
    uint32_t producers, me;
} stress;

static void *stress_producer(void *arg) {
    stress *s = (stress *)arg;
    dlp_mpsc_tx tx;
    uint64_t state = s->me;
    if (dlp_mpsc_attach_tx(&tx, s->mem, s->bytes, (int)s->me) != (int)s->me) exit(1);
    tx.lane.spin_ns = tx.lane.yields = 0;
    for (uint64_t i = 0; i < s->records; i++) {
        uint64_t value = (uint64_t)s->me << 48 | i;
        if (dlp_mpsc_push(&tx, &value, 30000) != DLP_OK) exit(1);
        if (draw(&state) % 64 == 0) sched_yield();
    }
    return NULL;
}

/* Returns the number of sleeps that were cut only by their end. */
static uint64_t stress_consume(const stress *s) {
    dlp_mpsc_rx rx;
    dlp_spsc_rx lanes[8];
    uint64_t next[8] = {0}, bad = 0, state = 99, late = 0;
    if (dlp_mpsc_attach_rx(&rx, lanes, 8, s->mem, s->bytes) != DLP_OK) exit(1);
    rx.spin_ns = rx.yields = 0;
    for (uint64_t i = 0; i < s->records * s->producers; i++) {
        uint64_t value, begin = dlpi_now_ns();
        uint32_t p;
        if (dlp_mpsc_pop(&rx, &value, &p, 30000) != DLP_OK) exit(1);
        late += seconds_since(begin) > 0.09 && seconds_since(begin) < 0.15;
        bad += value != ((uint64_t)p << 48 | next[p]++);
        if (draw(&state) % 512 == 0) sched_yield();
    }
    CHECK(bad == 0); /* records out of order */
    if (late > 10)
        fprintf(stderr, "%s: %llu waits of 100 ms\n", test_name, (unsigned long long)late);
    return late;
}

static uint64_t stress_run(uint32_t producers, uint64_t capacity, uint64_t records, int processes) {
    stress all[8];
    pthread_t threads[8];
    pid_t pids[8];
    uint64_t bytes = dlp_mpsc_bytes(8, capacity, producers);
    guarded map = guarded_map(bytes, processes);
    CHECK(dlp_mpsc_init(map.mem, bytes, 8, capacity, producers, processes) == DLP_OK);
    fflush(NULL);
    for (uint32_t i = 0; i < producers; i++) {
        stress one = {map.mem, bytes, records * work, producers, i};
        all[i] = one;
        if (!processes) {
            CHECK(pthread_create(&threads[i], NULL, stress_producer, &all[i]) == 0);
        } else if ((pids[i] = fork()) == 0) {
            stress_producer(&all[i]);
            _exit(0);
        }
    }
    uint64_t late = stress_consume(&all[0]);
    for (uint32_t i = 0; i < producers; i++) {
        if (processes)
            CHECK(child_status(pids[i]) == 0);
        else
            pthread_join(threads[i], NULL);
    }
    guarded_unmap(&map);
    return late;
}

static void stress_one(uint32_t producers, uint64_t capacity, uint64_t records, int processes) {
    CHECK_ONE_OF_5(stress_run(producers, capacity, records, processes) <= 10);
}

static void stress__no_spin_threads__no_wake_is_lost(void) {
    stress_one(1, 1, 3000, 0);
    stress_one(1, 8, 20000, 0);
    stress_one(4, 2, 2000, 0);
    stress_one(8, 64, 5000, 0);
}

static void stress__no_spin_processes__no_wake_is_lost(void) {
    stress_one(1, 2, 1000, 1);
    stress_one(8, 16, 1000, 1);
}

static void cpu_count__here__at_least_one_and_no_more_than_online(void) {
    int n = dlpi_cpu_count();
    CHECK(n >= 1 && n <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void) {
    if (getenv("SOAK")) work = 50;
#ifdef DLPIPE_PORTABLE_WAIT
    RUN(fork__threads_woke_alone__child_has_no_lock); /* before any thread has waited */
    RUN(wait__another_value__returns_at_once);
    RUN(wait__nobody_wakes__ends_in_time);
    RUN(wake__some__the_first_that_came);
    RUN(wake__a_word_of_the_same_bucket__others_sleep_on);
    RUN(wait__words_of_a_pipe__in_many_buckets);
    RUN(fork__locked_buckets__child_has_none_of_them);
    RUN(wake__at_any_moment__none_lost);
#endif
    RUN(cpu_count__here__at_least_one_and_no_more_than_online);
    RUN(wait__nothing_comes__times_out_in_time);
    RUN(burst__part_fits__rest_times_out);
    RUN(sleeper__record_comes__woken_at_once);
    RUN(sleeper__lane_closed__woken_at_once);
    RUN(sleeper__other_process_pushes__woken);
    RUN(producer_asleep__half_is_free__woken_then);
    RUN(producer_asleep__tiny_ring__woken);
    RUN(sleeper__wake_word_never_woken__looks_after_100_ms);
    RUN(membarrier__refused__both_waiters_say_rmw_and_work);
    RUN(one_sleeper__many_pushes__one_wake);
    RUN(blocked__half_a_second__few_system_calls);
#if !MEMBARRIER_REFUSED
    RUN(nobody_sleeps__push_and_pop__no_system_call);
#endif
    RUN(stress__no_spin_threads__no_wake_is_lost);
    RUN(stress__no_spin_processes__no_wake_is_lost);
    return done("queue_wait");
}
