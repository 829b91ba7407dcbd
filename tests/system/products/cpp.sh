#!/bin/sh
# C++: examples/cpp/dlpipe.hpp compiles in silence as C++17 and C++20 with both compilers. Its
# tests, cpp.cc and cpp_table.cc, pass under the address and undefined sanitizers, and with SOAK=1
# under the thread sanitizer. The example loader.cpp learns, replaces what cannot be read, goes on
# where it was stopped, and says what is wrong; graph.cpp gives the same with any number of workers.
dir=build/cpp
. tests/rig/shell_rig
fresh_dir

warn='-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror'
address='-fsanitize=address,undefined -fno-sanitize-recover=all'
command -v g++ >/dev/null 2>&1 || skip 'g++ is not installed'
missing=''
command -v clang++ >/dev/null 2>&1 || missing=clang++

silent() { # COMPILER STANDARD FILE ...
    compiler=$1 standard=$2
    shift 2
    for file in "$@"; do
        $compiler -std=$standard $warn -I. -Iexamples/cpp -Itests/rig -DPROCESSES -fsyntax-only \
            $file || fail "not in silence: $compiler -std=$standard $file"
    done
}
# What is compiled below is C++17 of clang++, which takes half as long, or of g++ without it.
silent g++ c++20 tests/system/products/cpp.cc examples/cpp/loader.cpp
c=${CC:-cc} cxx=g++
if command -v clang++ >/dev/null 2>&1; then
    c=clang cxx=clang++
    silent g++ c++17 tests/system/products/cpp.cc tests/system/products/cpp_table.cc \
        examples/cpp/loader.cpp examples/cpp/graph.cpp
    silent clang++ c++20 tests/system/products/cpp_table.cc examples/cpp/graph.cpp
fi

# The implementation of dlpipe.h and dlpipe_shm.h, as C; and a program in C++ with it.
implementation() { # NAME FLAGS
    # shellcheck disable=SC2086
    $c -std=c11 -O0 -g1 $2 -DDLPIPE_IMPLEMENTATION -include dlpipe.h \
        -include dlpipe_shm.h -x c -c -o $dir/$1.o /dev/null || fail "$1: does not compile"
}
program() { # NAME IMPLEMENTATION FLAGS FILE
    # shellcheck disable=SC2086
    $cxx -std=c++17 $warn -O0 -g1 $3 -I. -Iexamples/cpp -Itests/rig -o "$dir/$1" $4 $dir/$2.o \
        -lpthread -lm || fail "$4: does not compile, $2"
}

fixed="setarch $(uname -m) -R" # the thread sanitizer wants an address space that is not so random
$fixed true 2>/dev/null || fixed=''
implementation address "$address"
[ -z "${SOAK:-}" ] || implementation thread -fsanitize=thread
for test in cpp cpp_table; do
    program $test address "$address -DPROCESSES" tests/system/products/$test.cc
    timeout 100 $dir/$test || fail "address: $test: exit code $?"
    [ -n "${SOAK:-}" ] || continue
    program ${test}_thread thread -fsanitize=thread tests/system/products/$test.cc
    TSAN_OPTIONS=halt_on_error=1 timeout 100 $fixed $dir/${test}_thread ||
        fail "thread: $test: exit code $?"
done

program loader address "$address" examples/cpp/loader.cpp
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

program graph address "$address" examples/cpp/graph.cpp
for workers in 0 1 4; do
    timeout 60 $dir/graph -w $workers | sed 1d >$dir/said.$workers
    grep -q '^13498 games, the sum is 504.019216901$' $dir/said.$workers ||
        fail "graph, $workers workers: $(cat $dir/said.$workers)"
done

[ $wrong -eq 0 ] && [ -n "$missing" ] && skip "$missing is not installed; the rest is well"
[ $wrong -eq 0 ]
