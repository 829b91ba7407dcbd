#!/bin/sh
# The example of "make run" from end to end: damaged files give an error that names the file, the
# result is the same for any number of workers, Ctrl-C ends it, and on the real images one epoch
# learns something.
dir=build/example_fashion_mnist
. tests/rig/shell_rig
fresh_dir
mkdir $dir/out $dir/data

program=$dir/program
linked examples/fashion_mnist.c $program -O3 || exit 1

fresh() {
    rm -rf $dir/data
    cp -r $dir/good $dir/data
}

# refuses FILE WORDS: the program ends with 1 and names the file and what is wrong with it
refuses() {
    timeout 60 $program -o $dir/out $dir/data >$dir/said 2>&1
    code=$?
    [ $code -eq 1 ] && grep -q "$1: .*$2" $dir/said && return
    fail "expected '$1: $2', got exit code $code and: $(head -n 5 $dir/said)"
}

images_of $dir/data/train 300
images_of $dir/data/t10k 70
mv $dir/data $dir/good
train="train-images-idx3-ubyte"

fresh; rm $dir/data/$train; refuses $train 'No such file'
fresh; : >$dir/data/$train; refuses $train 'No data'
fresh; head -c 100000 $dir/good/$train >$dir/data/$train; refuses $train 'promises 235216'
fresh; echo more >>$dir/data/$train; refuses $train 'promises 235216'
fresh; cp $dir/data/t10k-labels-idx1-ubyte $dir/data/$train; refuses $train 'not an IDX file'
fresh; { word 2051; word 4294967295; word 28; word 28; } >$dir/data/$train
refuses $train 'promises 3367254359296'
fresh; { word 2051; word 0; word 28; word 28; } >$dir/data/$train; refuses $train 'no items'
fresh; { word 2051; word 1; word 1; word 784; head -c 784 $dir/good/$train; } >$dir/data/$train
refuses $train '28 x 28'
fresh; cp $dir/good/t10k-labels-idx1-ubyte $dir/data/train-labels-idx1-ubyte
refuses train-labels-idx1-ubyte 'another number'
fresh; { word 2049; word 70; head -c 69 /dev/zero; printf '\012'; } \
    >$dir/data/t10k-labels-idx1-ubyte
refuses t10k-labels-idx1-ubyte 'label above 9'

# One result for any number of workers, inline included, down to the last digit.
fresh
for w in 0 1 4; do
    timeout 60 $program -e 3 -w $w -o $dir/out $dir/data >$dir/said.$w 2>&1 ||
        fail "with $w workers: exit code $?: $(tail -n 3 $dir/said.$w)"
    grep '^trained\|^test accuracy' $dir/said.$w >$dir/result.$w
    [ "$(wc -l <$dir/result.$w)" -eq 2 ] || fail "with $w workers: no result"
    cmp -s $dir/result.0 $dir/result.$w || fail "with $w workers: another result than inline"
done
[ -s $dir/out/timeline.svg ] || fail 'left no timeline.svg'
[ -s $dir/out/trace.json ] || fail 'left no trace.json'
grep -q '>loss<' $dir/out/timeline.svg || fail 'timeline.svg: no lane of the loss'
[ "$(head -c 5 $dir/said.4)" = epoch ] ||
    fail "does not begin with training: $(head -n 1 $dir/said.4)"
grep -q '"ph":"C".*"name":"loss"' $dir/out/trace.json || fail 'trace.json: no loss'
timeout 60 $program -e 3 -s 2 -o $dir/out $dir/data 2>&1 | grep '^trained' >$dir/result.seed
! grep -q -F -f $dir/result.seed $dir/result.0 || fail 'another seed gives the same result'

# -v says the plan first. A picture of the longest wait is left if training waited, and only then:
# here each read takes 4 ms.
cat >$dir/slow.c <<'END'
#include <unistd.h>
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at) {
    usleep(4000);
    return __real_pread(fd, to, n, at);
}
END
for try in 1 2 3 4 5 6 7 8; do # on a busy machine some runs do wait
    rm -f $dir/out/stall.svg
    timeout 60 $program -e 3 -w $((try % 3)) -o $dir/out $dir/data >$dir/said 2>&1 ||
        fail "try $try: exit code $?: $(tail -n 3 $dir/said)"
    [ -e $dir/out/stall.svg ] || break
done
[ ! -e $dir/out/stall.svg ] || fail 'training hardly waited, but there is a stall.svg'
fast=$program
linked examples/fashion_mnist.c $dir/slow -O3 $dir/slow.c -Wl,--wrap=pread || exit 1
timeout 60 $dir/slow -v -e 2 -o $dir/out $dir/data >$dir/said 2>&1
program=$fast
[ -s $dir/out/stall.svg ] && grep -q 'longest wait as a picture' $dir/said ||
    fail "slow reads: left no stall.svg, and said: $(tail -n 4 $dir/said)"
head -n 1 $dir/said | grep -q '^batch slots' || fail "-v: no plan: $(head -n 1 $dir/said)"

# Ctrl-C: ends soon, says where it was, still leaves the picture.
rm -f $dir/out/*
( # what a shell puts in the background may ignore SIGINT; the program asks for it again
    exec $program -e 9999 -o $dir/out $dir/data
) >$dir/said 2>&1 &
pid=$!
await handles 2 $pid || fail 'has no handler for SIGINT'
sleep 1
kill -INT $pid 2>/dev/null
wait $pid
code=$?
[ $code -eq 130 ] || fail "after SIGINT: exit code $code"
grep -q '^stopped' $dir/said || fail "after SIGINT: does not say that it stopped"
[ -s $dir/out/timeline.svg ] || fail 'after SIGINT: left no timeline.svg'

[ $wrong -eq 0 ] || exit 1

# The real images, where they are.
DATA='' OFFLINE=1 sh examples/get_fashion_mnist.sh $dir/real >$dir/said 2>&1 ||
    skip 'dataset-fashion-mnist is not installed (what needs no images passed)'
begin=$(date +%s)
timeout 100 $program -e 1 -o $dir/out $dir/real >$dir/said 2>&1 ||
    fail "the real images: exit code $?: $(tail -n 3 $dir/said)"
said=$(grep -c '^epoch' $dir/said) most=$((($(date +%s) - begin) / 10 + 1))
[ $said -ge 1 ] && [ $said -le $most ] ||
    fail "not on a terminal: $said lines of progress, at most $most are one every 10 s"
right=$(sed -n 's/^test accuracy \([0-9]*\).*/\1/p' $dir/said)
[ "${right:-0}" -ge 78 ] || fail "test accuracy after one epoch: ${right:-none} %, expected 78"
rm -rf $dir/real
[ $wrong -eq 0 ]
