/* The header with what it takes from the system replaced, for model_slots.h. And, so that renaming
   there is one edit here, all that model_slots.c calls its functions and types, and what it says of
   accesses by the names of the functions that make them. */
#define calloc arena_take
#define malloc(n) arena_take(1, n)
#define free arena_free
#define pthread_create no_thread
#define pthread_setname_np(thread, name) ((void)(name))
#include "../../dlpipe.h"
#undef free
#undef calloc
#undef malloc
#undef pthread_create
#undef pthread_setname_np

#define hdr_slot_at dlpi_slot_at
#define hdr_sst_at dlpi_stage_words_at
#define hdr_done dlpi_done
#define hdr_own dlpi_owners
#define hdr_scan(p, words) (dlpi_owners(p, words) + (p)->units_max)
#define hdr_is_item_stage dlpi_is_item_stage
#define hdr_item_cell dlpi_item_cell
#define hdr_slot_rec dlpi_slot_fate
#define hdr_ready_past dlpi_ready_past
#define hdr_ready dlpi_ready
#define hdr_slot_of dlpi_slot_of
#define hdr_schedule dlpi_schedule
#define hdr_thread_scheduler dlpi_thread_scheduler
#define hdr_step(w) ((w)->st->ops->step(w))
#define hdr_worker_sleep(w) \
    dlpi_wait_once(&dlpi_worker_waits, &(dlpi_idle_worker){.w = (w)}, dlpi_worker_group(w), \
                   dlpi_worker_bit(w))
#define hdr_recover dlpi_recover
#define hdr_worker dlpi_worker
#define hdr_bslot dlpi_bslot
#define hdr_sst dlpi_stage_words
#define hdr_ctl dlpi_ctl
#define hdr_stage dlpi_stage
#define hdr_scheduler dlpi_scheduler
#define hdr_death dlpi_death

/* Mutants that nothing need notice: function, access, place, what is done to it, what orders it all
   the same. "needed": it is, but this checker cannot show it. */
#define NEEDLESS_OF_WORDS(X, func, access, how, why) \
    X(func, access, waiters word, how, why) \
    X(func, access, consumer_word, how, why) \
    X(func, access, feeder_word, how, why)
#define NEEDLESS_OF_MASKS(X, func, access, how, why) \
    X(func, access, waiters mask, how, why) \
    X(func, access, want, how, why) \
    X(func, access, feeder_sleeps, how, why)
#define NEEDLESS_MUTANTS(X) \
    X(dlpi_claim_advance, STORE_RLX, next, LATE, "a hint") \
    X(dlpi_claim_alone, STORE_REL, own 0, RELAXED, \
      "the bit of the row, behind it, releases it; recovery reads it after a death") \
    X(dlpi_claim_free, STORE_SEQ, own 0, NOT_SEQ, "releases: claimers acquire it (O1)") \
    X(dlpi_claim_freed, ADD_SEQ, frees, RELAXED, "only has to be a number of its own") \
    X(dlpi_claim_head, LOAD_ACQ, header, RELAXED, "ordered by T1 already") \
    X(dlpi_claim_look, LOAD_ACQ, own 0, RELAXED, "the claim, which follows, acquires") \
    X(dlpi_claim_owner, LOAD_SEQ, own 0, RELAXED, \
      "recovery: the dead one's own words; or a mark, there before the bits or ready, " \
      "which were acquired") \
    X(dlpi_claim_publish, STORE_REL, header, RELAXED, \
      "whoever looks at a batch has acquired a tail behind it (T1)") \
    X(dlpi_claim_publish, STORE_REL, header, LATE, "before the tail all the same (T1)") \
    X(dlpi_claim_take, CAS_SEQ, own 0, NOT_SEQ, "releases: claimers acquire it (O1)") \
    X(dlpi_credit_done, STORE_SEQ, used, RELAXED, "credits (V1): as credit_held") \
    X(dlpi_credit_done, STORE_SEQ, used, LATE, "credits (V1): as credit_held") \
    X(dlpi_credit_held, LOAD_SEQ, used, RELAXED, \
      "credits (V1): of prefetch + max_held slots one was released before a credit " \
      "came") \
    X(dlpi_credit_publish_quiet, STORE_REL, base, RELAXED, "released by delivered, behind it") \
    X(dlpi_credit_publish_quiet, STORE_REL, base, LATE, \
      "without unordered it is delivered, and prefetch the nearer bound") \
    X(dlpi_credit_seen, LOAD_SEQ, base, RELAXED, \
      "stored before delivered, which was read with acquire (V1)") \
    X(dlpi_credit_take, STORE_RLX, used, LATE, \
      "nobody releases a batch before the tail shows it (T1)") \
    NEEDLESS_OF_WORDS(X, dlpi_event_add, ADD_SEQ, RELAXED, \
                      "only has to change the word; whoever sleeps compares with the newest") \
    NEEDLESS_OF_WORDS( \
        X, dlpi_event_count, LOAD_SEQ, RELAXED, \
        "an old word ends the wait at once (loads are in the order of the program here)") \
    X(dlpi_gather_full, STORE_REL, scan, LATE, \
      "a hint: whoever looks before it is there looks at all words") \
    X(dlpi_gather_look, LOAD_ACQ, ready, RELAXED, \
      "needed: keeps the looks at the words behind it, which this checker does in any " \
      "case") \
    X(dlpi_gather_missing, LOAD_SEQ, done, RELAXED, \
      "own is read in one order behind it: a row that went back bears a mark") \
    X(dlpi_gather_take_back, AND_SEQ, done, RELAXED, \
      "the freed claims, behind it, release it, and recovery reads own in one order") \
    X(dlpi_gather_undo, LOAD_SEQ, ready, RELAXED, "whoever claimed the batch has acquired it") \
    X(dlpi_gather_undo, STORE_SEQ, ready, RELAXED, "the freed claims, behind it, release it") \
    X(dlpi_sleepers_mask, LOAD_SEQ, waiters mask, RELAXED, \
      "whoever is put off is woken before the consumer sleeps; or a hint how long to sleep") \
    NEEDLESS_OF_MASKS(X, dlpi_sleepers_leave, LOAD_SEQ, RELAXED, \
                      "of our own bit; if it says that it is set, the swap says better") \
    NEEDLESS_OF_MASKS(X, dlpi_sleepers_leave, AND_SEQ, RELAXED, \
                      "of our own bit: only decides who passes a wake-up on") \
    X(dlpi_sleepers_take_all, XCHG_SEQ, want, RELAXED, "only decides who wakes") \
    X(dlpi_sleepers_take_all, XCHG_SEQ, feeder_sleeps, RELAXED, "only decides who wakes") \
    X(dlpi_sleepers_take, AND_SEQ, waiters mask, RELAXED, \
      "only decides who wakes; what there is was shown before the look at the mask")

#define NEEDLESS_ROW(func, access, place, how, why) {#func, #access, #place, M_##how, why},
static const struct {
    const char *func, *access, *place;
    int how;
    const char *why;
} needless[] = {NEEDLESS_MUTANTS(NEEDLESS_ROW)};
enum { NEEDLESS = sizeof needless / sizeof *needless };
