#pragma once
/* tests: unit/queue/queue_wait, model/model_word_wait */
#include "api/atomics.h"
#include "base/darwin.h"
#include "base/lacking.h"
#include "base/linux.h"
#include "base/system_windows.h"
#if DLPI_PORTABLE_WAIT
/* ---------------------------------------------------------------------------------------------
   >>impl-word-wait  TO SLEEP ON A WORD, BY MUTEXES AND CONDITIONS
   For systems without a futex, and under DLPIPE_PORTABLE_WAIT. A word hashes to one of 64 buckets.
   A bucket has a mutex, and a list of the threads that sleep on its words, in order of arrival. A
   sleeper lies on the stack of its thread, with a condition of its own.

     wait   lock the bucket; compare the word; join the list; sleep on the own condition
     wake   lock the bucket; take the first n sleepers of this word and these bits out of the list,
            and signal their conditions; unlock

   label  word             written by                  read by (partner)
   WW1    the caller's     the waker, before its wake  wait, behind the lock
   WW2    begun            the first waits and wakes   all waits and wakes

   Why no wake-up is lost: the waker changes the word (WW1) before it locks the bucket. If the waker
   has the lock first, the sleeper locks behind it and sees the changed word. If the sleeper has the
   lock first, it is in the list when the waker looks.
   The compare is a relaxed load. It needs no order of its own: the unlock of an earlier waker and
   the lock of the sleeper order it behind that waker's change.
   Why a sleeper's record lives long enough: it leaves only under the lock, and the waker signals it
   under the lock.
   A fork: the child has one thread, which does not sleep, and locks that other threads of the
   parent held. So the child begins with an empty table. */

enum { DLPI_BUCKETS = 64 };

typedef struct dlpi_word_sleeper { /* a thread that sleeps; all is guarded by the bucket's lock */
    const uint32_t *word;
    uint32_t bits;
    bool woken;
    dlpi_cond cond;
    struct dlpi_word_sleeper *next;
} dlpi_word_sleeper;

typedef struct dlpi_bucket {
    dlpi_mutex lock;
    dlpi_word_sleeper *first;
} dlpi_bucket;

#define DLPI_BUCKET_INIT \
    { DLPI_MUTEX_INIT, NULL }
#define DLPI_BUCKETS_4 DLPI_BUCKET_INIT, DLPI_BUCKET_INIT, DLPI_BUCKET_INIT, DLPI_BUCKET_INIT
#define DLPI_BUCKETS_16 DLPI_BUCKETS_4, DLPI_BUCKETS_4, DLPI_BUCKETS_4, DLPI_BUCKETS_4

static dlpi_bucket dlpi_buckets[DLPI_BUCKETS] = {DLPI_BUCKETS_16, DLPI_BUCKETS_16, DLPI_BUCKETS_16,
                                                 DLPI_BUCKETS_16};

/* Empty the table, in the child of a fork. */
static void dlpi_word_forked(void) {
    static const dlpi_bucket empty = DLPI_BUCKET_INIT;
    for (int i = 0; i < DLPI_BUCKETS; i++) dlpi_buckets[i] = empty;
}

/* Ask that forks empty the table. It is done before the first lock of a bucket. Two threads may ask
   at once; then a fork empties the table twice. */
static void dlpi_word_begin(void) {
    static uint32_t begun;
    if (DLPI_LOAD_ACQ(&begun) != 0) return; /* WW2 <- WW2 */
    dlpi_forked_call(dlpi_word_forked);
    DLPI_STORE_REL(&begun, 1u); /* WW2 -> WW2 */
}

/* Return the bucket of a word. Words that threads sleep on lie in cache lines of their own. */
static dlpi_bucket *dlpi_bucket_of(const uint32_t *word) {
    const uint64_t at = (uint64_t)(uintptr_t)word >> 6;
    return &dlpi_buckets[at * UINT64_C(0x9e3779b97f4a7c15) >> 58];
}

/* Put a sleeper at the end of a bucket's list. The lock must be held. */
static void dlpi_word_join(dlpi_bucket *b, dlpi_word_sleeper *me) {
    dlpi_word_sleeper **at = &b->first;
    while (*at != NULL) at = &(*at)->next;
    *at = me;
}

/* Take a sleeper out of a bucket's list. The lock must be held. */
static void dlpi_word_leave(dlpi_bucket *b, const dlpi_word_sleeper *me) {
    dlpi_word_sleeper **at = &b->first;
    while (*at != me) at = &(*at)->next;
    *at = me->next;
}

/* Sleep as dlpi_futex_wait says, if the waker is in this process. */
static int dlpi_word_wait(const uint32_t *word, uint32_t expect, uint32_t bits, uint64_t until) {
    dlpi_bucket *b = dlpi_bucket_of(word);
    dlpi_word_sleeper me = {.word = word, .bits = bits};
    dlpi_word_begin();
    dlpi_mutex_lock(&b->lock);
    if (DLPI_LOAD_RLX(word) != expect) { /* WW1 <- WW1: ordered by the lock, or by its own order */
        dlpi_mutex_unlock(&b->lock);
        return 0;
    }
    dlpi_cond_begin(&me.cond);
    dlpi_word_join(b, &me);
    while (!me.woken && dlpi_cond_wait_until(&me.cond, &b->lock, until)) {}
    if (!me.woken) dlpi_word_leave(b, &me);
    dlpi_mutex_unlock(&b->lock);
    dlpi_cond_end(&me.cond);
    return !me.woken;
}

/* Wake the first n threads that sleep on the word with one of these bits. */
static void dlpi_word_wake(const uint32_t *word, int n, uint32_t bits) {
    dlpi_bucket *b = dlpi_bucket_of(word);
    dlpi_word_begin();
    dlpi_mutex_lock(&b->lock);
    for (dlpi_word_sleeper **at = &b->first; *at != NULL && n > 0;) {
        dlpi_word_sleeper *s = *at;
        if (s->word != word || (s->bits & bits) == 0) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->woken = true;
        n--;
        dlpi_cond_signal(&s->cond);
    }
    dlpi_mutex_unlock(&b->lock);
}

/* Sleep by the kernel only if the waker may be another process. On a system without futexes such a
   sleep ends by its time alone. */
static int dlpi_futex_wait(uint32_t *word, uint32_t expect, uint32_t bits, uint64_t timeout_ns,
                           int shared) {
#if DLPI_ON_LINUX
    if (shared) return dlpi_kernel_wait(word, expect, bits, timeout_ns, shared);
#endif
    (void)shared;
    return dlpi_word_wait(word, expect, bits, dlpi_wait_end(timeout_ns));
}

/* Wake those that sleep by the kernel, or those of this process. */
static void dlpi_futex_wake(uint32_t *word, int n, uint32_t bits, int shared) {
#if DLPI_ON_LINUX
    if (shared) {
        dlpi_kernel_wake(word, n, bits, shared);
        return;
    }
#endif
    (void)shared;
    dlpi_word_wake(word, n, bits);
}
#endif
