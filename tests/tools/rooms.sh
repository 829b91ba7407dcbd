#!/bin/sh
# How long is each room of the core? Lines of code count: comments and blank lines do not, so that
# nobody saves by cutting an argument. No room may be longer than rooms.known has it.
#
#   tests/tools/rooms.sh [known]     known: print what rooms.known is to hold
dir=build/rooms
. tests/rig/shell_rig
fresh_dir

for room in $(echo pipe,wait,fail,cells,slot,row,work,deliver,flight,observe | tr , " "); do
    awk -v room=$room "$code_awk"'
    FNR == 1 { in_comment = 0 }
    bare($0) ~ /[^ ]/ { n++ }
    END { print room, NR, n }' src/$room/*.h
done >$dir/rooms
awk '{ print $1, $3 }' $dir/rooms >$dir/counts

if [ "${1:-}" = known ]; then
    echo '# Lines of code of each room of the core: rooms.sh. They may only fall.'
    cat $dir/counts
    exit
fi
awk '{ printf "%-8s %5d lines, %5d of code\n", $1, $2, $3 }
    NR <= 8 { all += $2; code += $3 }
    END { printf "%-8s %5d lines, %5d of code\n", "the core", all, code }' $dir/rooms
counts_held rooms
[ $wrong -eq 0 ]
