#!/bin/sh
# make bench-topologies in a short form: every line is printed and sane, every way to load delivers
# the same bytes (the program compares them), and each has its timeline. And the example that takes
# a folder of JPEGs, on the pictures that the benchmark has made.
dir=build/bench_topologies
. tests/rig/shell_rig
fresh_dir

echo '#include <stdio.h>
#include <jpeglib.h>
int main(void) { return 0; }' | ${CC:-cc} -x c -o $dir/probe - -ljpeg 2>$dir/probe.log ||
    skip 'no libjpeg to compile with (libjpeg62-turbo-dev)'
linked examples/jpeg_folder.c $dir/jpeg_folder -ljpeg || exit 1
program=$dir/program
${CC:-cc} -std=c11 -O0 -o $program tests/bench/bench_topologies.c \
    -lpthread -lm -ldl -ljpeg || exit 1

SHORT=1 $program -o $dir/lines.jsonl -j $dir/jpegs -p made -n 64 -s $dir >$dir/out 2>$dir/err ||
    fail "it failed: $(cat $dir/err)"
cmp -s $dir/out $dir/lines.jsonl || fail 'lines on standard output and in the file differ'

# A line for each row, with all its keys and figures that can be.
awk '
function number(key) {
    if (!match($0, "\"" key "\":-?[0-9.e+-]+[,}]")) { print "no " key ": " $0; bad = 1; return 0 }
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 4) + 0
}
function within(key, low, high,   x) {
    x = number(key)
    if (x < low || x > high) { print key " is " x ": " $0; bad = 1 }
}
!/^\{"bench":"topo_[a-z0-9_]+",.*\}$/ { print "no line of a bench: " $0; bad = 1; next }
/"skipped":/ { if (!/"peer":"torch","skipped":"[^"]+"/) { print; bad = 1 }; skipped++; next }
/topo_decode_ceiling/ { within("ours", 10, 1e6); next }
/topo_bare_/ { within("ours", 10, 1e6); within("of_ideal", 0.001, 100); bare++; next }
/topo_(economic_(threads|async)|parts|chunks)[a-z_]*_30ms"/ { within("of_bare", 0.001, 1000) }
{
    rows++
    within("ours", 10, 1e6); within("wait_share", 0, 1); within("first_batch_ms", 0.1, 10000)
    within("epoch_gap_ms", 0, 10000); within("peak_bytes", 1e6, 1e9); within("plan_bytes", 1e6, 1e9)
    within("bytes_per_s", 1e4, 1e10); within("of_ideal", 0.001, 100)
}
END {
    if (rows < 21 || skipped != rows) { print rows " rows, " skipped " without PyTorch"; bad = 1 }
    if (bare != 5) { print bare " rows without a pipe"; bad = 1 }
    exit bad
}' $dir/lines.jsonl || fail 'lines are wrong'

for name in economic_seq_threads_local classic_seq_processes_30ms \
    chunks_seq_threads_local \
    concurrent_async_threads_local concurrent_threadspool_processes_30ms \
    parts_seq_threads_local parts_seq_processes_30ms; do
    grep -q "topo_$name\"" $dir/lines.jsonl || fail "no line of $name"
    grep -q '</svg>' $dir/timeline_$name.svg || fail "no timeline of $name"
done
grep -q 'each has up to 24 items under way' $dir/timeline_concurrent_async_threads_local.svg ||
    fail 'the timeline does not tell how many items each worker has'
for what in parts chunks; do
    grep -q "numbers are $what" $dir/timeline_${what}_seq_threads_local.svg ||
        fail "the timeline of $what does not tell whose numbers these are"
done
awk '/>parts-0</ { parts = NR } />fetch-0</ { fetch = NR } END { exit !(parts && parts < fetch) }' \
    $dir/timeline_parts_seq_threads_local.svg || fail 'part workers are drawn below fetch'
grep -q '^0 failures' $dir/err || fail "failures: $(cat $dir/err)"

echo 'no picture' >$dir/jpegs/text.jpg
head -c 5000 $dir/jpegs/00007.jpg >$dir/jpegs/half.jpg
$dir/jpeg_folder -w 2 -e 2 $dir/jpegs >$dir/folder 2>&1 || fail "jpeg_folder: $(cat $dir/folder)"
for said in '^132 pictures in ' '^4 could not be decoded' '/text.jpg$' '/half.jpg$' '^Limit: '; do
    grep -q "$said" $dir/folder || fail "jpeg_folder does not say $said: $(cat $dir/folder)"
done
$dir/jpeg_folder $dir/nowhere >$dir/folder 2>&1 && fail 'jpeg_folder takes a folder that is none'
grep -q nowhere $dir/folder || fail "jpeg_folder does not name the folder: $(cat $dir/folder)"

[ $wrong -eq 0 ]
