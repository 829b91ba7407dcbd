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
    for std in c++17 c++20; do # what is compiled below is g++'s C++17
        [ $cxx$std = g++c++17 ] && continue
        $cxx -std=$std $warn -I. -Iexamples/cpp -DPROCESSES -fsyntax-only \
            tests/system/products/cpp.cc &&
            $cxx -std=$std $warn -I. -fsyntax-only examples/cpp/loader.cpp ||
            fail "not in silence: $cxx -std=$std"
    done
done

# The implementation of dlpipe.h and dlpipe_shm.h, as C; and a program in C++ with it.
implementation() { # NAME FLAGS
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c11 -O0 -g1 $2 -DDLPIPE_IMPLEMENTATION -include dlpipe.h \
        -include dlpipe_shm.h -x c -c -o $dir/$1.o /dev/null || fail "$1: does not compile"
}
program() { # NAME IMPLEMENTATION FLAGS FILE
    # shellcheck disable=SC2086
    g++ -std=c++17 $warn -O0 -g1 $3 -I. -Iexamples/cpp -o "$dir/$1" $4 $dir/$2.o -lpthread -lm ||
        fail "$4: does not compile, $2"
}

fixed="setarch $(uname -m) -R" # the thread sanitizer wants an address space that is not so random
$fixed true 2>/dev/null || fixed=''
implementation address "$address"
program cpp address "$address -DPROCESSES" tests/system/products/cpp.cc
timeout 100 $dir/cpp || fail "address: exit code $?"
implementation thread -fsanitize=thread
program cpp_thread thread -fsanitize=thread tests/system/products/cpp.cc
TSAN_OPTIONS=halt_on_error=1 timeout 100 $fixed $dir/cpp_thread || fail "thread: exit code $?"

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

[ $wrong -eq 0 ] && [ -n "$missing" ] && skip "$missing is not installed; the rest is well"
[ $wrong -eq 0 ]
