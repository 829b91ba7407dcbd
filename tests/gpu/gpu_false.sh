#!/bin/sh
# The program of make gpu: with a driver made here, which copies as it should; with one that spoils
# a byte, which each case that compares must see; and without a driver, where it says so in a line.
dir=build/gpu_false
. tests/rig/shell_rig
fresh_dir

cc="${CC:-cc} -std=c11 -w -O0"
$cc -shared -fPIC -o $dir/libcuda.so tests/gpu/false_cuda.c -lpthread &&
    $cc -o $dir/gpu tests/gpu/gpu.c -lpthread -lm -ldl || exit 1

$dir/gpu -q -l $dir/libcuda.so >$dir/said 2>&1 || fail "with a good driver: $(cat $dir/said)"
grep -q '^gpu: all is well$' $dir/said || fail "it does not end well: $(cat $dir/said)"

spoilt() { # N CASE...: each must see that the N-th copy is wrong
    n=$1
    shift
    FALSE_SPOILS=$n $dir/gpu -q -l $dir/libcuda.so "$@" >$dir/spoilt 2>&1 &&
        fail "no case sees that copy $n is wrong"
    for c in "$@"; do
        grep -q "^$c  *[0-9]* checks, [1-9][0-9]* failed" $dir/spoilt ||
            fail "$c does not see that copy $n is wrong: $(grep "^$c" $dir/spoilt)"
    done
}
spoilt 2 transfer count large outs chunks tokens killed forked resumed
spoilt 3 transfer large outs chunks tokens killed forked resumed # which kernels compare

$dir/gpu -l $dir/none.so >$dir/none 2>&1 || fail 'no driver is a failure'
[ "$(grep -c '' $dir/none)" = 1 ] || fail "without a driver it says: $(cat $dir/none)"
grep -q '^no GPU: no driver: ' $dir/none || fail "without a driver: $(cat $dir/none)"
[ $wrong = 0 ]
