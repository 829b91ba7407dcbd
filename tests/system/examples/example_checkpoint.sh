#!/bin/sh
# examples/checkpoint, stopped again and again, as a batch system, a terminal or the kernel stop a
# job: at any moment, start-up included, every process of the group or of the job at once. Resumed
# until it is done it says what an undisturbed run says, and no life of it leaves a process behind.
dir=$(pwd)/build/example_checkpoint
. tests/rig/shell_rig
fresh_dir

command -v setsid >/dev/null || skip 'there is no setsid (util-linux)'
program=$dir/checkpoint
linked examples/checkpoint.c "$program" || exit 1

# The processes that run it: trainer, supervisor and workers; no zombies, which have no program.
alive() {
    # shellcheck disable=SC2012
    ls -l /proc/[0-9]*/exe 2>/dev/null | sed -n "s|.* /proc/\([0-9]*\)/exe -> $program\$|\1|p"
}

none() { [ -z "$(alive)" ]; }
some() { [ -n "$(alive | grep -v "^$1\$")" ]; } # but for one

late=0
none_left() { # WHAT: within a second, but for a few of all: others may have the cores
    await none && {
        [ $awaited -le 20 ] || late=$((late + 1))
        return
    }
    fail "$1: left processes behind: $(alive | tr '\n' ' ')"
    # shellcheck disable=SC2046
    kill -s KILL $(alive) 2>/dev/null
}

# hit SIGNAL WHOM PID: its process group, or every process of the job
hit() {
    if [ "$2" = all ]; then
        # shellcheck disable=SC2046
        kill -s "$1" $(alive) 2>/dev/null
    else
        kill -s "$1" -- "-$3" 2>/dev/null
    fi
}

# Has it handlers, or has it ended?
ready() { handles 15 "$1" || ! kill -0 "$1" 2>/dev/null || is_zombie "$1"; }

is_zombie() { grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }

# Is there another checkpoint than when it began, or has it ended?
saved() { ! cmp -s "$dir/state" "$dir/state.was" || is_zombie "$1"; }

# one_life SIGNAL WHOM DELAY WORKERS: leaves its exit code in $code
one_life() {
    rm -f "$dir/state.was"
    [ ! -e "$dir/state" ] || cp "$dir/state" "$dir/state.was"
    setsid "$program" -w "$4" "$dir/state" >>"$dir/said" 2>>"$dir/errors" &
    pid=$!
    case $3 in 0.05 | 0.22) await ready $pid ;; esac # past start-up, however long that takes
    sleep "$3"
    [ "$1 $3" != 'KILL 0.22' ] || await saved $pid
    tries=0
    until hit "$1" "$2" $pid || [ $tries -ge 500 ]; do # there may be no such group yet
        kill -s 0 $pid 2>/dev/null || break
        tries=$((tries + 1))
        sleep 0.001
    done
    sleep 0.02
    hit "$1" "$2" $pid # as those do who send it more than once
    wait $pid 2>/dev/null # where shells say what ended it
    code=$?
    none_left "after $1 to $2 at $3 s"
}

# lives SIGNAL WHOM: until one of them comes to the end. The moments are of start-up first, then of
# training, where a life is long enough to come to the checkpoint that SIGKILL leaves.
lives() {
    rm -f "$dir/state" "$dir/state.new" "$dir/said" "$dir/errors"
    n=0
    stops=0
    code=1
    for workers in 4 2 1 0 4 4 4 4 4 4; do
        for delay in 0 0.002 0.004 0.008 0.05 0.22; do
            one_life "$1" "$2" $delay $workers
            n=$((n + 1))
            case $code in
            0) break 2 ;;
            75) stops=$((stops + 1)) ;;
            130 | 143) # there was no handler yet
                [ $delay != 0.22 ] && [ $delay != 0.05 ] || fail "$1 to $2 at $delay s ended it"
                ;;
            137) [ "$1" = KILL ] || fail "$1 to $2: it was killed" ;;
            *) fail "$1 to $2 at $delay s: exit code $code: $(tail -n 3 "$dir/errors")" ;;
            esac
        done
    done
    [ $code -eq 0 ] || fail "$1 to $2: not done after $n lives"
    [ "$1" = KILL ] || [ $stops -ge 2 ] || fail "$1 to $2: $stops stops in $n lives"
    grep '^trained\|^an epoch' "$dir/said" | sort -u >"$dir/lives"
    cmp -s "$dir/whole" "$dir/lives" ||
        fail "$1 to $2: $n lives differ from one: $(cat "$dir/lives")"
}

timeout 60 "$program" "$dir/state" >"$dir/said" 2>"$dir/errors" ||
    fail "undisturbed: exit code $?: $(cat "$dir/errors")"
none_left undisturbed
sort -u "$dir/said" >"$dir/whole"
[ "$(wc -l <"$dir/whole")" -eq 3 ] || fail "undisturbed, it says: $(cat "$dir/whole")"

# Once more from its end: the same, and nothing trained.
timeout 60 "$program" "$dir/state" >"$dir/said" 2>&1 || fail "from its end: exit code $?"
grep '^trained' "$dir/whole" >"$dir/end"
grep '^trained' "$dir/said" | cmp -s - "$dir/end" || fail "from its end: $(cat "$dir/said")"

# To its workers and their supervisor alone, these mean nothing.
for _ in 1 2 3 4 5; do # the trainer is stopped meanwhile, if it is not done by then
    rm -f "$dir/state"
    setsid "$program" "$dir/state" >"$dir/said" 2>"$dir/errors" &
    pid=$!
    await some $pid
    sleep 0.1
    kill -s STOP $pid
    sent=0
    for signal in TERM INT HUP USR1 USR2; do
        # shellcheck disable=SC2046
        kill -s $signal $(alive | grep -v "^$pid\$") 2>/dev/null && sent=$((sent + 1))
    done
    kill -s CONT $pid
    wait $pid || fail "with signals to its workers: exit code $?: $(cat "$dir/errors")"
    [ $sent -lt 5 ] || break
done
[ $sent -eq 5 ] || fail 'there were no workers to send signals to'
sort -u "$dir/said" | cmp -s - "$dir/whole" ||
    fail "with signals to its workers: $(cat "$dir/said")"

# To all of the job, as Slurm's --signal sends it: it saves behind each, and goes on to the end.
rm -f "$dir/state"
setsid "$program" "$dir/state" >"$dir/said" 2>"$dir/errors" &
pid=$!
await ready $pid
for n in 1 2 3 4; do
    hit USR1 all $pid
    said_so() { [ "$(grep -c '^saved' "$dir/said")" -ge $n ] || is_zombie $pid; }
    await said_so || fail "USR1 $n: not saved"
done
wait $pid || fail "with USR1 to all: exit code $?: $(cat "$dir/errors")"
grep -q '^saved' "$dir/said" || fail 'with USR1 to all: it never saved'
none_left 'after USR1 to all'
grep -v '^saved' "$dir/said" | sort -u | cmp -s - "$dir/whole" ||
    fail "with USR1 to all: $(cat "$dir/said")"

lives TERM all
lives KILL group # of the trainer alone: the others are in a group of their own
[ "${SHORT:-}" = 1 ] || lives INT all
[ "${SOAK:-}" != 1 ] || lives KILL all
[ $late -le 5 ] || fail "$late times processes were there a second after it had ended"

# A file that is none of its own is refused and stays.
echo something else >"$dir/state"
timeout 60 "$program" "$dir/state" >"$dir/said" 2>&1 && fail 'took a file that is no checkpoint'
[ "$(cat "$dir/state")" = 'something else' ] || fail 'wrote over a file that is no checkpoint'

[ $wrong -eq 0 ]
