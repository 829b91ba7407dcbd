#!/bin/sh
# examples/s3_train.c from end to end, against Ceph's radosgw, which this starts and ends: a bucket
# is filled and trained from, with one result for one object an image and for shards of many, for
# threads and for processes; what is not there is named.
dir=build/example_s3
. tests/rig/shell_rig

trains() { # NAME OPTIONS..: leaves what it found out in $dir/NAME
    name=$1
    shift
    timeout 150 $dir/program -b 16 "$@" >$dir/said 2>&1 || fail "$name: $?: $(tail -n 3 $dir/said)"
    sed -n 's/^trained in .* s; //p; /^test accuracy/p' $dir/said >$dir/"$name"
    [ "$(wc -l <$dir/"$name")" -eq 2 ] || fail "$name: no result: $(tail -n 3 $dir/said)"
}

if [ "${1:-}" = use ]; then
    while [ ! -f $dir/compiled ]; do sleep 0.05; done
    timeout 150 $dir/program -u $dir s3://images/one >$dir/said 2>&1 || fail "one: $(cat $dir/said)"
    grep -q '^train: 200 of 200 objects' $dir/said || fail "one: $(cat $dir/said)"
    timeout 150 $dir/program -u -k 32 $dir s3://images/a/shard/ >$dir/said 2>&1 ||
        fail "many: $(cat $dir/said)"
    grep -q '^test: 3 of 3 objects' $dir/said || fail "many: $(cat $dir/said)"
    trains one -e 2 s3://images/one
    trains processes -e 2 -p -w 2 s3://images/one
    trains many -e 2 -w 3 -f 5 s3://images/a/shard
    trains longer -e 3 s3://images/a/shard
    for name in processes many; do
        cmp -s $dir/one $dir/$name || fail "$name: $(cat $dir/$name), not $(cat $dir/one)"
    done
    cmp -s $dir/one $dir/longer && fail 'the number of epochs does not matter'
    $dir/program s3://images/none >$dir/said 2>&1 && fail 'it trains on nothing'
    grep -q 'none/train/: no images' $dir/said || fail "none: $(cat $dir/said)"
    $dir/program s3://nowhere/none >$dir/said 2>&1 && fail 'it trains on nothing'
    grep -q 's3://nowhere.*404.*NoSuchBucket' $dir/said || fail "nowhere: $(cat $dir/said)"
    AWS_SECRET_ACCESS_KEY=wrong $dir/program s3://images/one >$dir/said 2>&1 &&
        fail 'a wrong secret does'
    grep -q '403.*SignatureDoesNotMatch' $dir/said || fail "wrong secret: $(cat $dir/said)"
    exit $wrong
fi

fresh_dir
command -v python3 >/dev/null || skip 'there is no python3, which starts the server'
(linked examples/s3_train.c $dir/program >$dir/log 2>&1
    : >$dir/compiled) &
images_of $dir/train 200
images_of $dir/t10k 70
tests/servers/radosgw.py -- sh "$0" use
code=$?
wait
[ -s $dir/log ] && cat $dir/log
exit $code
