#!/bin/sh
# Check tests/model/model_wake.pml with spin: what must hold, and that what must not hold is found.
set -u
cc=${CC:-cc}
dir=build/model_wake
command -v spin >/dev/null 2>&1 || { echo 'skipped: spin is not installed'; exit 77; }
mkdir -p $dir
cp tests/model/model_wake.pml $dir
cd $dir || exit 1
bad=0

check() { # holds|fails name switches...
    want=$1 name=$2
    shift 2
    rm -f pan* model_wake.pml.trail
    spin -a "$@" model_wake.pml >"$name.log" 2>&1 && "$cc" -O1 -w -DSAFETY -o pan pan.c ||
        { cat "$name.log"; exit 1; }
    ./pan >"$name.log" 2>&1
    errors=$(sed -n 's/.*errors: //p' "$name.log")
    states=$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' "$name.log")
    case $want$errors in
    holds0 | fails[1-9]*) ;;
    *) bad=1 name="$name: WRONG" ;;
    esac
    echo "$name: $states states, $errors errors ($want)"
}

check holds waker_dies__sleep_times_out__all_taken
check fails waker_dies__no_time_out__sleeps_for_ever -DNO_TIMEOUT
check holds nobody_dies__no_time_out__all_wake -DNO_TIMEOUT -DNO_DEATH
check fails no_second_look__no_time_out__sleeps_for_ever -DNO_TIMEOUT -DNO_DEATH -DNO_RECHECK
check fails futex_compares_nothing__sleeps_for_ever -DNO_TIMEOUT -DNO_DEATH -DNO_COMPARE
exit $bad
