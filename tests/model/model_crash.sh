#!/bin/sh
# Check model_crash.pml with spin: what must hold in several small pipes, and that each mutant
# (a check or an order of the protocol left out) is found.
#
#   model_crash.sh        all that must hold, and every fifth mutant: half a minute on two
#                               cores; SHORT=1: less; SOAK=1: all, large ones
#   model_crash.sh NAME   one of them, with the way to the failure if there is one
model=model_crash

list() {
    cat <<'LIST'
holds 0 fetch__one_row                    N=2 DEATHS=1
holds 2 fetch__slots_go_round             N=3 DEATHS=1
holds 2 fetch__two_deaths                 N=2 DEATHS=2
holds 2 fetch__two_rows                   N=1 DEATHS=2 ROWS=2
holds 2 fetch__two_words                  N=1 DEATHS=1 ROWS=2 WORDS=2
holds 2 fetch__two_words_two_deaths       N=1 DEATHS=2 ROWS=2 WORDS=2
holds 0 item_map__one_row                 N=2 DEATHS=1 K=2 NI=2
holds 2 item_map__two_deaths              N=2 DEATHS=2 K=2 NI=2
holds 1 item_map__slots_go_round          N=3 DEATHS=1 K=2 NI=2
holds 0 item_map__rows_one_by_one         N=1 DEATHS=2 K=2 NI=2 ROWS=2 RPU=2
holds 0 item_map__row_fails               N=1 DEATHS=1 K=2 NI=2 FAILS=1
holds 2 item_map__row_fails_2_deaths      N=2 DEATHS=2 K=2 NI=2 FAILS=1
holds 2 item_map__three_workers           N=1 DEATHS=1 K=2 NI=2 W=3 CROWD_LAST
holds 0 batch_map__one_row                N=1 DEATHS=2 K=2
holds 2 batch_map__two_batches            N=2 DEATHS=2 K=2
holds 1 batch_map__slots_go_round         N=3 DEATHS=1 K=2
holds 1 batch_map__two_words              N=1 DEATHS=2 K=2 ROWS=2 WORDS=2
holds 0 batch_map__batch_fails            N=1 DEATHS=1 K=2 FAILS=1
holds 2 batch_map__fails_and_dies         N=2 DEATHS=1 K=2 FAILS=1
holds 2 batch_map__three_workers          N=1 DEATHS=1 K=2 W=3 CROWD_LAST
holds 0 collate__one_row                  N=2 DEATHS=1 K=2 STAGED
holds 1 collate__slots_go_round           N=3 DEATHS=1 K=2 STAGED
holds 2 collate__two_deaths               N=2 DEATHS=2 K=2 STAGED
holds 2 waiters__two_fetch                  N=1 DEATHS=1 SLEEPS
holds 1 waiters__one_of_each_stage          N=1 DEATHS=1 SLEEPS K=2 NI=2
holds 2 waiters__item_map                   N=1 DEATHS=2 SLEEPS K=2 NI=2
holds 2 waiters__batch_map                  N=2 DEATHS=1 SLEEPS K=2
fails 0 freed_without_a_look_at_done      FREE_UNSEEN N=1 DEATHS=1 K=2 NI=2
fails 2 freed_though_the_slot_went_on     FREE_UNSEEN N=3 DEATHS=1
fails 0 freed_without_a_look_at_ready     FREE_UNSEEN N=1 DEATHS=1 K=2
fails 0 rows_that_are_done_go_back        FREE_WHOLE_UNIT N=1 DEATHS=1 K=2 NI=2 ROWS=2 RPU=2
fails 0 rows_run_again_in_place           IN_PLACE_AGAIN N=1 DEATHS=1 K=2 NI=2
fails 0 batch_runs_again_in_place         IN_PLACE_AGAIN N=1 DEATHS=1 K=2
fails 1 freed_values_repeat               FREED_ALIKE N=1 DEATHS=0 FAILS=2 K=2 NI=2 W=3 CROWD_LAST
fails 0 freed_before_bits_are_taken       FREE_BEFORE_BITS N=1 DEATHS=2 K=2 NI=2
fails 2 freed_before_ready_is_taken       FREE_BEFORE_READY N=1 DEATHS=1 K=2 W=3 CROWD_LAST
fails 0 ready_is_taken_before_bits        READY_BEFORE_BITS N=1 DEATHS=2 K=2
fails 2 ready_before_bits__nobody_dies READY_BEFORE_BITS N=1 DEATHS=0 FAILS=1 K=2 W=3 ROWS=2 WORDS=2
fails 0 ready_without_redo_count          READY_WITHOUT_COUNT N=1 DEATHS=3 K=2
fails 0 ready_as_the_batch_before_left_it READY_AS_BEFORE N=1 DEATHS=2 K=2
fails 0 scan_hint_without_redo_count      SCAN_WITHOUT_COUNT N=1 DEATHS=1 K=2 ROWS=2 WORDS=2
fails 0 closer_reads_ready_after_words    CLOSE_READS_READY_LATE N=1 DEATHS=2 K=2
fails 0 recovery_reads_ready_after_words  RECOVERY_READS_READY_LATE N=3 DEATHS=1
fails 0 recovery_does_not_close           NO_CLOSE N=1 DEATHS=1
fails 0 no_rewind                         NO_REWIND N=1 DEATHS=1
fails 0 rewind_before_freeing             REWIND_FIRST N=1 DEATHS=1 K=2 NI=2
fails 0 rewind_if_something_was_freed     REWIND_IF_FREED N=1 DEATHS=2 K=2 NI=2
fails 0 rows_pass_without_rewind          PASS_WITHOUT_REWIND N=1 DEATHS=1 K=2 NI=2
fails 0 batch_passes_without_rewind       PASS_WITHOUT_REWIND N=1 DEATHS=1 K=2
fails 0 goes_back_without_owning          BACK_WITHOUT_OWNING N=1 DEATHS=1 FAILS=1 K=2 NI=2
fails 0 batch_goes_back_without_owning    BACK_WITHOUT_OWNING N=1 DEATHS=1 FAILS=1 K=2
fails 2 own_word_read_once                OWN_READ_ONCE N=1 DEATHS=1 FAILS=1 K=2 NI=2 W=3
fails 0 cell_freed_before_ready           CELL_FREED_BY_WORD N=2 DEATHS=1 K=2 STAGED
fails 0 wake_bit_stays                    WAKE_BITS_STAY N=1 DEATHS=1 SLEEPS K=2 NI=2
fails 0 recovery_wakes_nobody             WAKE_NOBODY N=1 DEATHS=1 SLEEPS
LIST
}

build="-O1 -DMEMLIM=2000" search="-m20000 -w22"
build_soak="-O2 -DCOLLAPSE -DMEMLIM=4000" search_soak=$search
steps='pc==\|pc = DEAD'
. tests/model/model_rig
