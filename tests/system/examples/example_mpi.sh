#!/bin/sh
# examples/mpi_train: 4 ranks, stopped, go on as 3 and then as 2, and train in each step the images
# that one rank trains in it, undisturbed, in that order; the loss is the same but for rounding.
# Told to stop at any moment, all ranks stop behind the same step and leave a checkpoint.
dir=build/example_mpi
. tests/rig/shell_rig
fresh_dir

command -v mpicc >/dev/null && command -v mpirun >/dev/null ||
    skip 'there is no mpicc or no mpirun (openmpi-bin, libopenmpi-dev)'
LINKED_CC=mpicc linked examples/mpi_train.c $dir/mpi_train -O1 || exit 1
DATA='' OFFLINE=1 sh examples/get_fashion_mnist.sh $dir/data >$dir/said 2>&1 ||
    skip 'dataset-fashion-mnist is not installed'

flags=
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    flags='--allow-run-as-root --oversubscribe'
fi

# train RANKS STEPS STATE OPTION..: leaves what it said in $dir/said, the images of steps in .steps
train() {
    ranks=$1 steps=$2 state=$3
    shift 3
    # shellcheck disable=SC2086
    timeout -k 5 100 mpirun $flags -n "$ranks" $dir/mpi_train -i -n "$steps" "$@" \
        "$dir/$state" $dir/data >$dir/said 2>$dir/errors
    code=$?
    grep '^step' $dir/said >>"$dir/$state.steps"
    return $code
}

loss() {
    sed -n 's/^.*, loss \([0-9.]*\)$/\1/p' $dir/said
}

# like ONE: is the last loss the other one, to six digits?
like() {
    awk -v a="$1" -v b="$(loss)" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6) }'
}

train 1 60 whole -w 0 || fail "one rank: exit code $?: $(cat $dir/errors)"
[ "$(wc -l <$dir/whole.steps)" -eq 60 ] || fail "one rank: $(wc -l <$dir/whole.steps) steps"
[ "$(awk 'NR == 7 { print NF }' $dir/whole.steps)" -eq 50 ] || fail 'a step has not 48 images'
[ "$(tr ' ' '\n' <$dir/whole.steps | grep -v 'step\|:' | sort | uniq -d | wc -l)" -eq 0 ] ||
    fail 'an image came twice'
whole=$(loss)

train 4 21 lives -w 2 || fail "4 ranks: exit code $?: $(cat $dir/errors)"
grep -q '^stopped: 4 ranks, 21 steps' $dir/said || fail "4 ranks: $(tail -n 1 $dir/said)"
train 3 40 lives -w 1 || fail "3 ranks: exit code $?: $(cat $dir/errors)"
grep -q '^stopped: 3 ranks, 40 steps' $dir/said || fail "3 ranks: $(tail -n 1 $dir/said)"
train 2 60 lives -w 3 || fail "2 ranks: exit code $?: $(cat $dir/errors)"
grep -q '^stopped: 2 ranks, 60 steps' $dir/said || fail "2 ranks: $(tail -n 1 $dir/said)"
cmp -s $dir/whole.steps $dir/lives.steps || fail 'three lives train other images than one'
like "$whole" || fail "the loss of three lives is $(loss), of one $whole"

# SIGTERM to one rank in the middle of it: one step is the last of all, and the checkpoint is of it.
# (Sent to mpirun it would come to all of them, and SIGKILL a second behind it.)
: >$dir/said # the lives before it have steps there, too
# shellcheck disable=SC2086
timeout -k 5 100 mpirun $flags -n 4 $dir/mpi_train -i -e 9999 $dir/told $dir/data >$dir/said \
    2>$dir/errors &
pid=$!
await grep -q '^step' $dir/said || fail "no step of four: $(tail -n 3 $dir/errors)"
# shellcheck disable=SC2012
rank=$(ls -l /proc/[0-9]*/exe 2>/dev/null |
    sed -n "s|.* /proc/\([0-9]*\)/exe -> $(pwd)/$dir/mpi_train\$|\1|p" | tail -n 1)
kill -s TERM "$rank"
wait $pid || fail "SIGTERM: exit code $?: $(tail -n 3 $dir/errors)"
last=$(sed -n 's/^stopped: 4 ranks, \([0-9]*\) steps.*/\1/p' $dir/said)
if [ "${last:-0}" -gt 0 ]; then
    cp $dir/told $dir/alone
    train 3 $((last + 5)) told -e 9999 || fail "behind SIGTERM: exit code $?: $(cat $dir/errors)"
    had=$(loss)
    train 1 $((last + 5)) alone -e 9999 || fail "behind it, alone: exit code $?"
    head -n 1 $dir/told.steps | grep -q "^step $((last + 1)):" && like "$had" &&
        cmp -s $dir/told.steps $dir/alone.steps ||
        fail "told to stop after $last steps, it goes on with: $(cut -c 1-60 $dir/told.steps)"
else
    fail "SIGTERM to $rank: it says: $(grep -v '^step' $dir/said) $(cat $dir/errors)"
fi

# What cannot be is told: a batch that ranks cannot share, a file that is none of ours.
train 5 3 odd && fail '5 ranks share 48 images'
grep -q 'world_size' $dir/errors || fail "5 ranks: $(cat $dir/errors)"
echo something else >$dir/other
train 1 3 other && fail 'took a file that is no checkpoint'
[ "$(cat $dir/other)" = 'something else' ] || fail 'wrote over a file that is no checkpoint'

rm -rf $dir/data
[ $wrong -eq 0 ]
