#!/bin/sh
# How long is each room of src/, and what is it for? Lines of code count: comments and blank lines
# do not, so that nobody saves by cutting an argument. rooms.known is one table:
#   ROOM LINES PURPOSE     the budget of a room
#   ROOM +LINES WHY        growth that was asked for, told in the commit that brings it
# No room may be longer than its lines together. A room that is not in the table has none.
#
#   tests/tools/rooms.sh [known]     known: print the table with today's lines as budgets
dir=build/rooms
. tests/rig/shell_rig
fresh_dir
table=tests/tools/rooms.known

for path in src/*/; do
    room=$(basename "$path")
    [ "$room" = doc ] && continue # text alone
    awk -v room="$room" "$code_awk"'
    FNR == 1 { in_comment = 0 }
    bare($0) ~ /[^ ]/ { n++ }
    END { print room, n + 0 }' "$path"*.h
done >$dir/counts

case ${1:-} in
known)
    sed -n '/^#/p' $table
    awk 'FNR == NR { n[$1] = $2; next }
        !/^#/ && $2 !~ /^[+]/ && $1 in n {
            text = $0; sub(/^[^ ]+ +[^ ]+ +/, "", text); printf "%-8s %6d  %s\n", $1, n[$1], text
        }' $dir/counts $table
    exit
    ;;
esac
awk -v core="pipe wait fail cells slot row work deliver" '
BEGIN { n = split(core, name, " "); for (i = 1; i <= n; i++) in_core[name[i]] }
FNR == NR { if (!/^#/) most[$1] += $2; next }
{
    more = ($2 > most[$1] + 0) ? "   MORE" : ""
    printf "%-8s %5d lines of code, budget %5d%s\n", $1, $2, most[$1], more
    all += $2; if ($1 in in_core) sum += $2
}
END { printf "%-8s %5d lines of code\n%-8s %5d\n", "the core", sum, "all", all }' \
    $table $dir/counts >$dir/report
cat $dir/report
! grep -q MORE $dir/report || fail "rooms: more than tests/tools/rooms.known has"
[ $wrong -eq 0 ]
