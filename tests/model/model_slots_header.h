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
#define hdr_scan dlpi_scan
#define hdr_is_item_stage dlpi_is_item_stage
#define hdr_item_cell dlpi_item_cell
#define hdr_slot_rec dlpi_slot_rec
#define hdr_ready_past dlpi_ready_past
#define hdr_ready dlpi_ready
#define hdr_slot_of dlpi_slot_of
#define hdr_schedule dlpi_schedule
#define hdr_thread_scheduler dlpi_thread_scheduler
#define hdr_step(w) ((w)->st->ops->step(w))
#define hdr_worker_sleep dlpi_worker_sleep
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
static const struct {
    const char *func, *access, *place;
    int how;
    const char *why;
} needless[] = {
    {"dlpi_batch_failed", "STORE_REL", "done", M_RELAXED,
     "of a claimed batch: only a death of its owner tells (crash_steps)"},
    {"dlpi_batch_failed", "STORE_REL", "done", M_LATE, "of a claimed batch: as above"},
    {"dlpi_claim_advance", "STORE_RLX", "next", M_LATE, "a hint"},
    {"dlpi_claim_free", "STORE_SEQ", "own 0", M_NOT_SEQ, "releases: claimers acquire it (O1)"},
    {"dlpi_claim_freed", "ADD_SEQ", "frees", M_RELAXED, "only has to be a number of its own"},
    {"dlpi_claim_head", "LOAD_ACQ", "header", M_RELAXED, "ordered by T1 already"},
    {"dlpi_claim_look", "LOAD_ACQ", "own 0", M_RELAXED, "the claim, which follows, acquires"},
    {"dlpi_claim_mark", "STORE_SEQ", "own 0", M_RELAXED,
     "released by the bits, behind it; a claim: by the first stage's, behind it"},
    {"dlpi_claim_owner", "LOAD_SEQ", "own 0", M_RELAXED,
     "recovery: the dead one's own words; or a mark, there before the bits or ready, which were "
     "acquired"},
    {"dlpi_claim_publish", "STORE_REL", "header", M_RELAXED,
     "whoever looks at a batch has acquired a tail behind it (T1)"},
    {"dlpi_claim_publish", "STORE_REL", "header", M_LATE, "before the tail all the same (T1)"},
    {"dlpi_claim_take", "CAS_SEQ", "own 0", M_NOT_SEQ, "releases: claimers acquire it (O1)"},
    {"dlpi_credit_done", "STORE_SEQ", "used", M_RELAXED, "credits (V1): as credit_held"},
    {"dlpi_credit_done", "STORE_SEQ", "used", M_LATE, "credits (V1): as credit_held"},
    {"dlpi_credit_held", "LOAD_SEQ", "used", M_RELAXED,
     "credits (V1): of prefetch + max_held slots one was released before a credit came"},
    {"dlpi_credit_publish_quiet", "STORE_REL", "base", M_RELAXED,
     "released by delivered, behind it"},
    {"dlpi_credit_publish_quiet", "STORE_REL", "base", M_LATE,
     "without unordered it is delivered, and prefetch the nearer bound"},
    {"dlpi_credit_seen", "LOAD_SEQ", "base", M_RELAXED,
     "stored before delivered, which was read with acquire (V1)"},
    {"dlpi_credit_take", "STORE_RLX", "used", M_LATE,
     "nobody releases a batch before the tail shows it (T1)"},
    {"dlpi_event_add", "ADD_SEQ", "waiters word", M_RELAXED,
     "only has to change the word; whoever sleeps compares with the newest"},
    {"dlpi_event_add", "ADD_SEQ", "caller_word", M_RELAXED, "only has to change the word"},
    {"dlpi_event_add", "ADD_SEQ", "feeder_word", M_RELAXED, "only has to change the word"},
    {"dlpi_event_count", "LOAD_SEQ", "waiters word", M_RELAXED,
     "an old word ends the wait at once (loads are in the order of the program here)"},
    {"dlpi_event_count", "LOAD_SEQ", "caller_word", M_RELAXED, "as above"},
    {"dlpi_event_count", "LOAD_SEQ", "feeder_word", M_RELAXED, "as above"},
    {"dlpi_gather_full", "STORE_REL", "scan", M_LATE,
     "a hint: whoever looks before it is there looks at all words"},
    {"dlpi_gather_look", "LOAD_ACQ", "ready", M_RELAXED,
     "needed: keeps the looks at the words behind it, which this checker does in any case"},
    {"dlpi_gather_missing", "LOAD_SEQ", "done", M_RELAXED,
     "own is read in one order behind it: a row that went back bears a mark"},
    {"dlpi_gather_take_back", "AND_SEQ", "done", M_RELAXED,
     "the freed claims, behind it, release it, and recovery reads own in one order"},
    {"dlpi_gather_undo", "LOAD_SEQ", "ready", M_RELAXED,
     "whoever claimed the batch has acquired it"},
    {"dlpi_gather_undo", "STORE_SEQ", "ready", M_RELAXED,
     "the freed claims, behind it, release it"},
    {"dlpi_sleeper_leave", "STORE_SEQ", "feeder_sleeps", M_RELAXED,
     "takes a request back, and costs a wake where it is seen late"},
    {"dlpi_sleeper_leave", "STORE_SEQ", "feeder_sleeps", M_LATE, "as above"},
    {"dlpi_sleeper_wake", "XCHG_SEQ", "feeder_sleeps", M_RELAXED, "only decides who wakes"},
    {"dlpi_sleeper_wake_for", "XCHG_SEQ", "want", M_RELAXED, "only decides who wakes"},
    {"dlpi_sleepers_forget", "AND_SEQ", "waiters mask", M_RELAXED,
     "all are woken whatever the masks say"},
    {"dlpi_sleepers_leave", "LOAD_SEQ", "waiters mask", M_RELAXED,
     "of our own bit; if it says that it is set, the swap says better"},
    {"dlpi_sleepers_leave", "AND_SEQ", "waiters mask", M_RELAXED,
     "of our own bit: only decides who passes a wake-up on"},
    {"dlpi_sleepers_wake", "AND_SEQ", "waiters mask", M_RELAXED,
     "only decides who wakes; what there is was shown before the look at the mask"},
};
enum { NEEDLESS = sizeof needless / sizeof *needless };
