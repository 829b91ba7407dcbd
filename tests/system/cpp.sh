#!/bin/sh
# C++: examples/cpp/dlpipe.hpp compiles in silence as C++17 and C++20 with both compilers; its test,
# cpp.cc, passes under the address, undefined and thread sanitizers; and the example, loader.cpp,
# learns, replaces what cannot be read, goes on where it was stopped, and says what is wrong.
dir=build/cpp
. tests/rig/shell_rig
fresh_dir

warn='-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror'
address='-fsanitize=address,undefined -fno-sanitize-recover=all'
command -v g++ >/dev/null 2>&1 || skip 'g++ is not installed'
missing=''
command -v clang++ >/dev/null 2>&1 || missing=clang++

for cxx in g++ clang++; do
    command -v $cxx >/dev/null 2>&1 || continue
    for std in c++17 c++20; do
        for f in tests/system/cpp.cc examples/cpp/loader.cpp; do
            $cxx -std=$std $warn -I. -Iexamples/cpp -DPROCESSES -fsyntax-only $f ||
                fail "$f: not in silence: $cxx -std=$std"
        done
    done
done

# The implementation of dlpipe.h and dlpipe_shm.h, as C, and with it a program in C++.
program() { # NAME FLAGS FILE...
    name=$1
    flags=$2
    shift 2
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c11 $flags -DDLPIPE_IMPLEMENTATION -include dlpipe.h -include dlpipe_shm.h \
        -x c -c -o $dir/$name.o /dev/null &&
        g++ -std=c++17 $warn $flags -I. -Iexamples/cpp -o $dir/$name "$@" $dir/$name.o \
            -lpthread -lm || fail "$name: does not compile"
}

fixed="setarch $(uname -m) -R" # the thread sanitizer wants an address space that is not so random
$fixed true 2>/dev/null || fixed=''
program address "-O0 -g1 $address -DPROCESSES" tests/system/cpp.cc
timeout 100 $dir/address || fail "address: exit code $?"
program thread '-O0 -g1 -fsanitize=thread' tests/system/cpp.cc
TSAN_OPTIONS=halt_on_error=1 timeout 100 $fixed $dir/thread || fail "thread: exit code $?"

program loader -O1 examples/cpp/loader.cpp
timeout 60 $dir/loader >$dir/whole 2>$dir/said || fail "loader: exit code $?: $(cat $dir/said)"
grep -q '^trained, 158 steps$' $dir/whole || fail "loader says: $(cat $dir/whole)"
grep -q '^2 replaced, the last 1234$' $dir/said || fail "loader says: $(cat $dir/said)"
awk '/^epoch/ { last = $NF } NR == 1 { first = last } END { exit !(first > 0.6 && last < 0.2) }' \
    $dir/whole || fail "loader learns nothing: $(cat $dir/whole)"
for cut in 1 57 79 80 157; do # whatever the workers
    rm -f $dir/state
    {
        timeout 60 $dir/loader -w 3 -b $cut $dir/state && timeout 60 $dir/loader -w 0 $dir/state
    } >$dir/lives 2>$dir/said || fail "loader, cut at $cut: exit code $?: $(cat $dir/said)"
    cmp -s $dir/whole $dir/lives || fail "loader, cut at $cut: two lives differ from one"
done
timeout 60 $dir/loader -d >$dir/lives 2>$dir/said && fail 'loader -d: ends well'
for words in 'position 1000' 'field "x" is float32, not float64'; do
    grep -q "^loader: DLP_ERR_BUDGET: .*$words" $dir/said || fail "loader -d: $(cat $dir/said)"
done
printf 'my thesis' >$dir/state
timeout 60 $dir/loader $dir/state >$dir/lives 2>$dir/said && fail 'loader: took what is no state'
grep -q 'not a file that this program has written' $dir/said || fail "loader: $(cat $dir/said)"

[ $wrong -eq 0 ] && [ -n "$missing" ] && skip "$missing is not installed; the rest is well"
[ $wrong -eq 0 ]
