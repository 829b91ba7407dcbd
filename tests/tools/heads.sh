#!/bin/sh
# Each file of the implementation names the tests that hold it, behind #pragma once and by their
# paths below tests/: /* tests: unit/queue/queue_spsc, model/model */. All these tests exist.
# src/join.awk leaves the line out of the products.
dir=build/heads
. tests/rig/shell_rig
fresh_dir

files=$(ls src/*/*.h | grep -v '^src/\(api\|doc\)/')
for f in $files; do
    tests=$(sed -n '1,3s/^\/\* tests: \([a-z0-9_\/, ]*\) \*\/$/\1/p' "$f" | tr -d ,)
    [ -n "$tests" ] || fail "$f: no line /* tests: ... */ behind #pragma once"
    for t in $tests; do
        ls "tests/$t" "tests/$t".* >$dir/there 2>/dev/null
        [ -s $dir/there ] || fail "$f: there is no test tests/$t"
        echo "$t" >>$dir/named
    done
done
! grep -n '^/\* tests:' dlpipe*.h || fail 'the products have lines of tests'
echo "heads: $(echo "$files" | wc -l) files name $(sort -u $dir/named | wc -l) tests"
[ $wrong -eq 0 ]
