#!/bin/sh
# The products are what src/ gives: each is joined aside and compared. Where one differs, the line
# of src/ is named; nothing is changed.
dir=build/check_headers
. tests/rig/shell_rig
fresh_dir

for p in dlpipe dlpipe_shm dlpipe_s3; do
    awk -f src/join.awk src/$p.h.in >$dir/$p.h || exit 1
    cmp -s $dir/$p.h $p.h && continue
    line=$(cmp $dir/$p.h $p.h 2>&1 | sed -n 's/.*line \([0-9]*\)$/\1/p')
    [ -n "$line" ] || line=$(($(wc -l <$p.h) + 1)) # one of them ends there
    at=$(awk -v origin=1 -f src/join.awk src/$p.h.in | sed -n "${line}p")
    fail "$p.h:$line is not what ${at:-src/$p.h.in, at its end,} gives; \"make headers\" makes it:"
    sed -n "${line}p" $dir/$p.h | sed 's/^/  src      /'
    sed -n "${line}p" $p.h | sed 's/^/  product  /'
done
[ $wrong -eq 0 ] && echo 'check_headers: the products are what src/ gives'
[ $wrong -eq 0 ]
