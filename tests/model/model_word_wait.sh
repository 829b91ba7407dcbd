#!/bin/sh
# Check model_word_wait.pml with spin: no wake-up is lost, and each mutant is found.
#
#   model_word_wait.sh        small ones of what must hold, and every fifth mutant; SHORT=1: less;
#                             SOAK=1: all, in seconds
#   model_word_wait.sh NAME   one of them, with the way to the failure if there is one
model=model_word_wait

list() {
    cat <<'LIST'
holds 0 two_sleepers              N=1
holds 2 two_sleepers__longer      N=3
holds 1 two_sleepers__time_out    N=1 TIMES_OUT
holds 1 two_sleepers__no_cause    N=1 SPURIOUS
holds 2 two_words                 N=1 WORDS=2
holds 2 two_words__time_out       N=1 WORDS=2 TIMES_OUT
fails 0 plain_lock                PLAIN_LOCK N=1
fails 0 wakes_first               WAKES_FIRST N=1
fails 0 no_compare                NO_COMPARE N=1
fails 0 early_compare             EARLY_COMPARE N=1
fails 0 late_join                 LATE_JOIN N=1
fails 0 no_lock                   NO_LOCK N=1
fails 0 late_signal               LATE_SIGNAL N=1 TIMES_OUT
fails 0 any_bits                  ANY_BITS N=1
fails 0 any_word                  ANY_WORD N=1 WORDS=2
fails 0 stays                     STAYS N=1 TIMES_OUT
fails 0 leaves_always             LEAVES_ALWAYS N=1
fails 0 begins_first              BEGINS_FIRST N=1
LIST
}

build='-O1 -DCOLLAPSE' search=-m100000
build_soak=$build search_soak=-m1000000
steps='sleeper\|waker'
. tests/model/model_rig
