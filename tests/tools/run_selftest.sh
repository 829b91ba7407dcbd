#!/bin/sh
# The runner must count as it says: each way a test can end, the time limit, STRICT, an empty list.
dir=build/run_selftest
. tests/rig/shell_rig
fresh_dir

# expect CODE LAST-LINE LIST [VARIABLE=VALUE...]
expect() {
    code=$1 last=$2
    printf '%b' "$3" >$dir/list
    shift 3
    env STRICT=0 KEEP=$dir/log "$@" sh tests/tools/run $dir/list >$dir/said
    got=$?
    [ $got -eq "$code" ] && [ "$(tail -n 1 $dir/said)" = "$last" ] && return
    wrong=$((wrong + 1))
    echo "expected $code and '$last', got $got and:"
    cat $dir/said
}

expect 0 '2 passed, 0 failed, 0 skipped' 'a true\nb exit 0\n'
expect 1 '1 passed, 1 failed, 0 skipped' 'a true\nb false\n'
expect 0 '4 passed, 0 failed, 0 skipped' 'a echo 1\n--\nb true\nc true\nd true\n' TEST_JOBS=3
expect 1 '2 passed, 2 failed, 0 skipped' 'a exit 5\nb true\n--\nc true\nd exit 2\n' TEST_JOBS=2
# The file that tells when the first ones are over is not there before.
rm -f $dir/log/timed
expect 0 '2 passed, 0 failed, 0 skipped' \
    "a [ ! -e $dir/log/timed ]\n--\nb [ -e $dir/log/timed ]\n" TEST_JOBS=2
# Each of two waits for the other's file: they meet where both run at once, after the line.
cat >$dir/meet <<EOF
: >$dir/\$1
for i in 1 2 3 4 5 6 7 8 9 10; do [ ! -e $dir/\$2 ] || exit 0; sleep .2; done
exit 1
EOF
two="a sh $dir/meet x y\nb sh $dir/meet y x\n"
expect 0 '2 passed, 0 failed, 0 skipped' "--\n$two" TEST_JOBS=2
rm -f $dir/x $dir/y
expect 1 '1 passed, 1 failed, 0 skipped' "$two--\n" TEST_JOBS=2
expect 1 '0 passed, 1 failed, 0 skipped' 'a no-such-program-at-all\n'
expect 1 '0 passed, 1 failed, 0 skipped' 'a kill -SEGV $$\n'
expect 0 '1 passed, 0 failed, 1 skipped' 'a exit 77\nb true\n'
expect 1 '1 passed, 0 failed, 1 skipped' 'a exit 77\nb true\n' STRICT=1
expect 0 '1 passed, 0 failed, 0 skipped' 'a exit 78\nb true\n' STRICT=1
grep -q '^1 unavailable' $dir/said || { echo 'unavailable tests are not told'; wrong=1; }
no_cc='e echo no cc; exit 77\n'
# The lines count, and skips of one reason are folded into one line.
expect 0 '2 passed, 0 failed, 3 skipped' \
    "a true\nb echo no spin; exit 77\n--\nc echo skipped: no spin; exit 77\nd true\n$no_cc" \
    TEST_JOBS=1
[ "$(grep -c '^ok    \[[14]/5\] ' $dir/said)" -eq 2 ] || { echo 'lines do not count'; wrong=1; }
[ "$(grep -c 'no spin\|no cc' $dir/said)" -eq 1 ] &&
    grep -q 'no spin (b c); no cc (e)$' $dir/said ||
    { echo 'skips are not in one line'; wrong=1; }
expect 1 '0 passed, 0 failed, 0 skipped' ''
expect 0 '2 passed, 0 failed, 0 skipped' 'reads cat\nnext true\n'

expect 1 '0 passed, 1 failed, 0 skipped' 'a echo why it failed; exit 3\n'
grep -q 'why it failed' $dir/said || { echo 'the output of a failed test is not shown'; wrong=1; }

if command -v timeout >/dev/null 2>&1; then
    before=$wrong
    for limit in 1 4 16; do # more, where these two need more than that
        wrong=$before
        expect 1 '1 passed, 1 failed, 0 skipped' 'a echo said so; sleep 60\nb true\n' \
            TEST_TIMEOUT=$limit
        [ $wrong -gt $before ] || break
    done
    grep -q 'said so' $dir/said || { echo 'the output of a test out of time is lost'; wrong=1; }
fi

echo 0 >$dir/one
echo 1 >$dir/two
: >$dir/one.log
: >$dir/two.log
expect 1 '1 passed, 2 failed, 0 skipped' "a @$dir/one\nb @$dir/two\nc @$dir/three\n"

[ $wrong -eq 0 ]
