#pragma once
/* tests: system/core/streams, system/core/pipe_epochs */
#include "fail/fail.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-cancel     BATCHES THAT ARE CANCELLED
   The consumer may leave an epoch (dlp_pipe_next_epoch, the end of a stream) or its place
   (dlp_pipe_seek) while batches of it are under way. Each batch has a generation: the number of
   seeks before it was scheduled (seek_no, 16 bits) above its epoch (48 bits). ctl.cancel is the
   least generation that is not cancelled, and only the consumer moves it, up, by one store: by an
   epoch, or to epoch 0 after the next seek. Workers compare before each row, whoever passes batches
   on before each batch, and next drops what comes to it from below: so a batch may be half done, or
   scheduled after the store, and does no harm. Numbers of seeks wrap: 2^14 of them at most come
   between two batches that are delivered.

   N1: the store carries nothing for those who compare. What a seek has for the scheduler (where to
   go on) lies behind dlpi_place_lock, held for a copy only; the scheduler looks for it when
   ctl.cancel has another seek_no than its own, and schedules for the old one until then. That no
   batch will follow (ctl.end_of_input) is likewise said for one seek_no. */

static inline uint64_t dlpi_generation(uint64_t seek_no, uint64_t epoch) {
    return (seek_no << 48) + epoch; /* epochs are below DLPI_MAX_EPOCH */
}
static inline uint32_t dlpi_generation_seek(uint64_t generation) {
    return (uint32_t)(generation >> 48);
}

static inline bool dlpi_generation_cancelled(const dlpi_ctl *ctl, uint64_t generation) {
    return (int64_t)(generation - DLPI_LOAD_RLX(&ctl->cancel)) < 0; /* N1 */
}
static inline uint64_t dlpi_slot_generation(const dlpi_bslot *slot) {
    return dlpi_generation(slot->seek_no, slot->epoch);
}
static inline bool dlpi_cancelled(const dlpi_ctl *ctl, const dlpi_bslot *slot) {
    return dlpi_generation_cancelled(ctl, dlpi_slot_generation(slot));
}
