#!/bin/sh
# Check tests/model_crash.pml with spin: what must hold in several small pipes, and that each mutant
# (a check or an order of the protocol left out) is found.
#
#   tests/model_crash.sh        all that must hold, and every third mutant: half a minute on two
#                               cores; SHORT=1: less; SOAK=1: all, large ones
#   tests/model_crash.sh NAME   one of them, with the way to the failure if there is one
set -u
cc=${CC:-cc}
out=build/model_crash
command -v spin >/dev/null 2>&1 || { echo 'skipped: spin is not installed'; exit 77; }

# holds|fails; 0 always, 1 not with SHORT=1, 2 with SOAK=1 alone; name; switches
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
holds 2 bells__two_fetch                  N=1 DEATHS=1 BELLS
holds 1 bells__one_of_each_stage          N=1 DEATHS=1 BELLS K=2 NI=2
holds 2 bells__item_map                   N=1 DEATHS=2 BELLS K=2 NI=2
holds 2 bells__batch_map                  N=2 DEATHS=1 BELLS K=2
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
fails 0 bell_bits_stay                    BELL_BITS_STAY N=1 DEATHS=1 BELLS K=2 NI=2
fails 0 recovery_wakes_nobody             WAKE_NOBODY N=1 DEATHS=1 BELLS
LIST
}

try_one() { # a line of the list
    want=$1 name=$3
    shift 3
    for switch; do
        shift
        set -- "$@" "-D$switch"
    done
    rm -rf "${out:?}/$name"
    mkdir -p "$out/$name" && cp tests/model_crash.pml "$out/$name"
    (
        cd "$out/$name" || exit 1
        spin -a "$@" model_crash.pml >log 2>&1 &&
            "$cc" -w -DSAFETY -DVECTORSZ=512 $space -o pan pan.c >>log 2>&1 &&
            ./pan -m20000 -w22 >log 2>&1
    )
    errors=$(sed -n 's/.*errors: //p' "$out/$name/log")
    states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' "$out/$name/log")
    seconds=$(sed -n 's/.*elapsed time \(.*\) seconds/\1/p' "$out/$name/log")
    grep -q 'too small\|out of memory\|reached -DMEMLIM' "$out/$name/log" && errors=
    verdict=WRONG
    case $want$errors in holds0 | fails[1-9]*) verdict=$want ;; esac
    printf '%-5s %-36s %9s states %6s s  %s\n' "$verdict" "$name" "$states" "$seconds" "$*"
    [ -n "$only" ] || rm -rf "${out:?}/$name"
    [ $verdict != WRONG ]
}

only=${1:-}
space="-O1 -DMEMLIM=2000"
[ -n "${SOAK:-}" ] && space="-O2 -DCOLLAPSE -DMEMLIM=4000"
if [ -n "$only" ]; then
    # shellcheck disable=SC2046
    set -- $(list | awk -v n="$only" '$3 == n')
    [ $# -gt 0 ] || { echo "no model is called $only"; exit 1; }
    try_one "$@"
    code=$?
    shift 3
    cd "$out/$only" && [ -f model_crash.pml.trail ] &&
        spin $(printf ' -D%s' "$@") -k model_crash.pml.trail -p model_crash.pml |
        grep 'pc==\|pc = DEAD' | sed 's/model_crash.pml://; s/(state [0-9]*)//'
    exit $code
fi

most=1
[ -n "${SHORT:-}" ] && most=0
[ -n "${SOAK:-}" ] && most=2
mkdir -p $out
list | awk -v most=$most '$2 <= most && (most == 2 || $1 == "holds" || ++n % 3 == 0)' >$out/todo
count=$(grep -c . $out/todo)
[ "$count" -gt 0 ] || exit 1

lane() { # every second line
    bad=0
    while read -r line; do
        # shellcheck disable=SC2086
        try_one $line || bad=1
    done <"$out/todo.$1"
    exit $bad
}
awk -v out=$out/todo. '{ print > (out NR % 2) }' $out/todo
(lane 0) &
first=$!
(lane 1)
bad=$?
wait $first || bad=1
echo "$count models and mutants, $([ $bad -eq 0 ] && echo all || echo not all) as they should be"
exit $bad
