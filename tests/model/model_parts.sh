#!/bin/sh
# Check model_parts.pml with spin: what must hold in several small part queues, and that each
# mutant (a check or an order of the protocol left out) is found.
#
#   model_parts.sh        small ones of what must hold, and every fifth mutant: in seconds,
#                               on two cores; SHORT=1: less; SOAK=1: all, large ones
#   model_parts.sh NAME   one of them, with the way to the failure if there is one
model=model_parts

list() {
    cat <<'LIST'
holds 0 one_batch__a_loader_dies         B=1 DEATHS=1 MORTAL=1
holds 2 one_batch__a_reader_dies         B=1 DEATHS=1 MORTAL=2
holds 2 one_batch__two_deaths            B=1 DEATHS=2
holds 2 two_batches__anybody_dies        B=2 DEATHS=1
holds 1 a_cell_to_spare                  B=2 C=3 PREFETCH=2
holds 2 cells_go_round                   B=2 E=2 C=3 PREFETCH=2
holds 2 cells_go_round__a_loader_dies    B=2 E=2 C=3 PREFETCH=2 DEATHS=1 MORTAL=1
holds 2 two_readers                      B=2 IW=2 PREFETCH=2 C=3
holds 2 two_readers__one_dies            B=2 IW=2 PREFETCH=2 DEATHS=1 MORTAL=2
holds 2 two_loaders                      B=1 PW=2
holds 2 two_loaders__one_dies            B=1 PW=2 DEATHS=1 MORTAL=1
holds 0 an_epoch_is_left                 B=2 E=2 NEXTS=1
ends  2 an_epoch_is_left__no_circle      B=2 E=2 NEXTS=1
holds 2 an_epoch_is_left__a_loader_dies  B=2 E=2 NEXTS=1 DEATHS=1 MORTAL=1
holds 1 goes_back                        B=1 E=2 SEEKS=1
holds 2 goes_back__two_batches           B=2 E=2 SEEKS=1
holds 2 goes_back__into_an_epoch         B=2 E=2 SEEKS=1 SEEK_TO=1 C=3
holds 2 goes_back__a_loader_dies         B=1 E=2 SEEKS=1 DEATHS=1 MORTAL=1
holds 2 goes_back__a_load_fails          B=1 E=2 SEEKS=1 FAILS=1
holds 0 a_load_fails                     B=1 E=2 FAILS=1
holds 2 a_load_fails__its_loader_dies    B=1 E=2 FAILS=1 DEATHS=1 MORTAL=1
holds 1 a_load_is_tried_again            B=1 RETRIES=1
holds 2 tried_again__its_loader_dies     B=1 RETRIES=1 DEATHS=1 MORTAL=1
holds 1 a_batch_is_sent_back             B=2 INPLACE PREFETCH=2
ends  1 a_batch_is_sent_back__no_circle  B=1 INPLACE
holds 2 sent_back__anybody_dies          B=1 INPLACE DEATHS=1
holds 1 stopped_anywhere                 B=1 QUITS
holds 2 stopped_anywhere__a_loader_dies  B=1 QUITS DEATHS=1 MORTAL=1
holds 0 thread                           B=1 THREADED
holds 2 thread__a_loader_dies            B=1 THREADED DEATHS=1 MORTAL=1
holds 2 thread__goes_back                B=1 E=2 THREADED SEEKS=1
holds 2 thread__an_epoch_is_left         B=2 E=2 THREADED NEXTS=1
holds 0 emptied__a_loader_dies           EMPTIES B=1 DEATHS=1 MORTAL=1
holds 2 emptied__two_batches             EMPTIES B=2 DEATHS=1
holds 2 emptied__two_loaders             EMPTIES B=1 PW=2
holds 2 emptied__two_loaders__one_dies   EMPTIES B=1 PW=2 DEATHS=1 MORTAL=1
holds 1 emptied__an_epoch_is_left        EMPTIES B=2 E=2 NEXTS=1
holds 2 emptied__goes_back               EMPTIES B=1 E=2 SEEKS=1 DEATHS=1 MORTAL=1
holds 2 emptied__thread                  EMPTIES B=1 THREADED DEATHS=1 MORTAL=1
holds 2 a_ring_is_not_passed_on          PASSES_NOTHING_ON B=1 PW=2
holds 2 tickets_alike                    ALIKE B=2 E=2 NEXTS=1
holds 2 fields_before_claim__tickets_grow FIELDS_BEFORE_CLAIM B=2 E=2 NEXTS=1
holds 2 bits_say_nothing                 NO_BITS B=2 E=2 NEXTS=1
holds 2 bits_stay_set                    KEEPS_ITS_BIT B=2 E=2 NEXTS=1
holds 2 bits__two_loaders_tried_again    B=1 PW=2 RETRIES=1
fails 0 fields_before_claim              FIELDS_BEFORE_CLAIM ALIKE B=2 E=2 NEXTS=1
fails 0 needed_cell_is_given_away        NEED_UNSEEN B=2
fails 0 read_cell_is_given_away          LEFT_UNSEEN B=2 PREFETCH=2
fails 0 cell_is_given_away_behind_fetch  LEAVES_AFTER_FETCH INPLACE B=2 PREFETCH=2
fails 0 claimed_by_a_store               CLAIM_BY_STORE B=1 PW=2
fails 0 closed_by_a_store                CLOSES_BY_STORE B=2 E=2 NEXTS=1
fails 0 loading_cell_is_given_away       TAKES_LOADING B=2 E=2 NEXTS=1
fails 0 open_before_its_fields           OPENS_FIRST B=1
fails 0 fed_before_it_is_loaded          FEEDS_UNLOADED B=1
fails 0 counted_before_it_is_said        COUNTS_FIRST B=2 E=2 NEXTS=1
fails 0 not_counted                      COUNTS_NOTHING B=2 E=2 NEXTS=1
fails 0 count_seen_behind_the_look       COUNT_SEEN_LATE B=2 E=2 NEXTS=1
fails 0 woken_before_it_is_said           RINGS_FIRST B=1
fails 0 thread_woken_before_it_is_said    RINGS_FIRST B=1 THREADED
fails 0 read_before_it_is_emptied        READS_UNEMPTIED EMPTIES B=1
fails 0 opened_before_its_grant          GRANTS_LATE EMPTIES B=1
fails 0 opened_without_its_bit           OFFERS_NO_BIT B=1
fails 0 reopened_without_its_bit         REOPENS_WITHOUT_BIT B=1 DEATHS=1 MORTAL=1
fails 0 bit_cleared_behind_the_load      CLEARS_LATE B=2 E=2 NEXTS=1
fails 0 loader_looks_once                NO_SECOND_LOOK B=1
fails 0 caller_looks_once                NO_LAST_FEED B=1
fails 0 failure_of_another_epoch         SAME_FAILURE B=1 E=2 FAILS=1
fails 0 failure_of_before_the_seek       SEEK_KEEPS_FAILED B=1 SEEKS=1 FAILS=1
fails 2 part_takes_two_cells             SEEK_KEEPS_EPOCH B=2 E=2 SEEKS=1
fails 0 dead_ones_part_stays_his         NO_REOPEN B=1 DEATHS=1 MORTAL=1
fails 2 recovered_from_the_living        RECOVERS_ANY B=1 PW=2 DEATHS=1
fails 0 dead_ones_part_is_said_loaded    SAYS_LOADED B=1 DEATHS=1 MORTAL=1
fails 2 recovery_counts_nothing          NO_RECOUNT B=2 E=2 NEXTS=1 DEATHS=1 MORTAL=1
fails 0 recovery_wakes_nobody            WAKES_NOBODY B=1 DEATHS=1 MORTAL=1
fails 0 wake_bit_stays                   WAKE_BIT_STAYS B=1 DEATHS=1 MORTAL=1
LIST
}

build="-O0 -DMEMLIM=2000" search="-m50000 -w20" # small: longer to compile than to run
build_soak="-O2 -DMEMLIM=6000" search_soak="-m50000 -w24"
steps='pc==\|pc = DEAD\|(caller:'
. tests/model/model_rig
