#!/bin/sh
# examples/ranks, started as each launcher starts it: whatever the launcher, the rows of all ranks
# are each item of each epoch once, with the bytes and the places that one rank has; so they are
# when a run is told to stop by SIGUSR1 and started again with another number of ranks, when it is
# killed, and as tasks of an array. Open MPI's mpirun is the real one; the others are imitated: one
# process for each rank, with the variables that they set.
dir=$(pwd)/build/example_ranks
. tests/rig/shell_rig
fresh_dir

program=$dir/ranks
linked examples/ranks.c "$program" -O1 || exit 1
for name in $(env | sed -n 's/^\([A-Z0-9_]*\)=.*/\1/p'); do
    case $name in RANK | WORLD_SIZE | LOCAL_* | TORCHELASTIC_* | *PMI_* | OMPI_* | MV2_* | SLURM_*)
        unset "$name"
        ;;
    esac
done

# ranks_of VARIABLES N OUT LAUNCH OPTION..: N processes, of which i has what `VARIABLES i` says.
# Leaves the first exit code that is not 0 in $code.
ranks_of() {
    begin_ranks "$@"
    end_ranks
}
begin_ranks() {
    variables=$1 n=$2 out=$3 launch=$4
    shift 4
    mkdir -p "$dir/$out"
    pids=
    i=0
    while [ $i -lt "$n" ]; do
        # shellcheck disable=SC2046
        env $($variables $i "$n") "$program" "$@" "$dir/$out" "$launch" \
            >>"$dir/$out.said" 2>>"$dir/$out.errors" & # which env becomes; it gives up by itself
        last=$!
        pids="$pids $last"
        i=$((i + 1))
    done
}
end_ranks() {
    code=0
    for pid in $pids; do
        wait "$pid" 2>/dev/null
        its=$?
        [ $code -ne 0 ] || code=$its
    done
}

alone() { :; }
torchrun() { echo "TORCHELASTIC_RUN_ID=x RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2"; }
mpich() { echo "PMI_RANK=$1 PMI_SIZE=$2 MPI_LOCALRANKID=$1 MPI_LOCALNRANKS=$2"; }
srun() { # two nodes: the second has what is left
    half=$((($2 + 1) / 2))
    echo "SLURM_PROCID=$1 SLURM_STEP_NUM_TASKS=$2 SLURM_NTASKS=$2 SLURM_NODEID=$(($1 / half))" \
        "SLURM_LOCALID=$(($1 % half)) SLURM_STEP_TASKS_PER_NODE=$half,$(($2 - half))"
}
array() { # --array=5-11:2
    echo "SLURM_ARRAY_TASK_ID=$((5 + 2 * $1)) SLURM_ARRAY_TASK_COUNT=$2 SLURM_ARRAY_TASK_MIN=5" \
        "SLURM_ARRAY_TASK_STEP=2 SLURM_PROCID=0 SLURM_LOCALID=0"
}

# same OUT: are the rows of its launches 1, 2, .. those of one rank? Of a launch count those up to
# the step from which the next went on: it was killed where there are more.
same() {
    : >"$dir/rows"
    before=999999999
    for launch in 4 3 2 1; do
        ls "$dir/$1/$launch".[0-9]* >/dev/null 2>&1 || continue
        cat "$dir/$1/$launch".[0-9]* | awk -v before="$before" '$5 < before' >>"$dir/rows"
        first=$(cat "$dir/$1/$launch".[0-9]* | cut -d' ' -f5 | sort -n | head -n 1)
        [ -z "$first" ] || before=$first
    done
    sort -k1,1n -k2,2n "$dir/rows" | cut -d' ' -f1-4 >"$dir/sorted"
    cmp -s "$dir/whole" "$dir/sorted" ||
        fail "$1: $(wc -l <"$dir/sorted") rows, not those of one rank: $(cat "$dir/$1.errors")"
}

ended() { [ $code -eq "$1" ] || fail "$2: exit code $code: $(cat "$dir/$2.errors")"; }

# One rank: every item of both epochs, once.
ranks_of alone 1 one 1 -t 0
ended 0 one
cut -d' ' -f1-4 "$dir/one/1.0" >"$dir/whole"
[ "$(cut -d' ' -f1,3 "$dir/whole" | sort -u | wc -l)-$(wc -l <"$dir/whole")" = 2000-2000 ] ||
    fail "one rank: $(wc -l <"$dir/whole") rows"

# Each launcher.
for launcher in torchrun mpich srun; do
    ranks_of $launcher 4 $launcher 1 -t 0
    ended 0 $launcher
    same $launcher
    [ "$(grep -c '^rank [0-3] of 4, .*: done after 84 steps$' "$dir/$launcher.said")" -eq 4 ] ||
        fail "$launcher says: $(cat "$dir/$launcher.said")"
done
grep -q '^rank 3 of 4, 1 of 2 here' "$dir/srun.said" || fail "srun says: $(cat "$dir/srun.said")"
grep -q '^rank 3 of 4, 3 of 4 here' "$dir/mpich.said" || fail "mpich says: $(cat "$dir/mpich.said")"

if command -v mpirun >/dev/null && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    mkdir -p "$dir/mpirun"
    timeout -k 5 100 mpirun --allow-run-as-root --oversubscribe -n 4 "$program" -t 0 \
        "$dir/mpirun" 1 >"$dir/mpirun.said" 2>"$dir/mpirun.errors"
    code=$?
    ended 0 mpirun
    same mpirun
    grep -q '^rank 3 of 4, 3 of 4 here' "$dir/mpirun.said" ||
        fail "mpirun says: $(cat "$dir/mpirun.said")"
else
    echo 'no mpirun of Open MPI: left out'
fi

# Elastic: 4 ranks, then 3, then 2, then 1.
for n in 4 3 2 1; do
    steps=$(((5 - n) * 20))
    [ $n -gt 1 ] || steps=0
    ranks_of torchrun $n elastic $((5 - n)) -t 0 -n $steps
    ended $((n > 1 ? 75 : 0)) elastic
done
same elastic

# SIGUSR1, as Slurm sends it before the end: to all ranks, at a moment of their own each. They stop
# after one step, and scontrol requeue starts them again.
begin_ranks srun 4 requeued 1 -t 3000
some_rows() { [ -s "$dir/requeued/1.3" ]; }
await some_rows || fail "requeued: no rows: $(cat "$dir/requeued.errors")"
for pid in $pids; do
    kill -s USR1 "$pid" 2>/dev/null # or it has stopped with the first of them
done
end_ranks
ended 75 requeued
sed -n 's/^rank .*: stopped after //p' "$dir/requeued.said" | sort | uniq -c >"$dir/stops"
[ "$(awk '{ print $1 }' "$dir/stops")" = 4 ] ||
    fail "requeued: ranks stopped after other steps: $(cat "$dir/requeued.said")"
ranks_of srun 4 requeued 2 -t 0
ended 0 requeued
same requeued

# SIGUSR1 to one of them, and another number of ranks.
begin_ranks mpich 4 told 1 -t 3000
told_rows() { [ -s "$dir/told/1.0" ]; }
await told_rows || fail "told: no rows: $(cat "$dir/told.errors")"
kill -s USR1 "$last"
end_ranks
ended 75 told
ranks_of mpich 2 told 2 -t 0
ended 0 told
same told

# SIGKILL to all: they go on from the last checkpoint, and the rows since then come again.
begin_ranks torchrun 3 killed 1 -t 3000
checkpoint() { [ -s "$dir/killed/state" ]; }
await checkpoint || fail "killed: no checkpoint: $(cat "$dir/killed.errors")"
sleep 0.02
# shellcheck disable=SC2086
kill -s KILL $pids
end_ranks
ended 137 killed
ranks_of torchrun 4 killed 2 -t 0
ended 0 killed
same killed

# An array: its tasks know nothing of each other; one is stopped, and run again.
mkdir -p "$dir/array"
for i in 0 1 2 3; do
    # shellcheck disable=SC2046
    timeout 100 env $(array $i 4) "$program" -a -t 0 -n $((i == 2 ? 30 : 0)) "$dir/array" 1 \
        >>"$dir/array.said" 2>>"$dir/array.errors"
    code=$?
    ended $((i == 2 ? 75 : 0)) array
done
# shellcheck disable=SC2046
timeout 100 env $(array 2 4) "$program" -a -t 0 "$dir/array" 2 >>"$dir/array.said" \
    2>>"$dir/array.errors"
code=$?
ended 0 array
cat "$dir/array/2.2" >>"$dir/array/1.2"
rm "$dir/array/2.2"
same array

# What contradicts itself is told.
env RANK=1 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 "$program" "$dir/one" 9 \
    >"$dir/said" 2>&1 && fail 'two launchers contradict each other: it went on'
grep -q 'RANK is 1, but OMPI_COMM_WORLD_RANK is 2' "$dir/said" || fail "it says: $(cat "$dir/said")"

[ $wrong -eq 0 ]
