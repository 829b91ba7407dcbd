#!/bin/sh
# Which functions call a callback of the user that makes or changes an item, and which store the
# word that recovery reads (X2, running)? A call counts by the type of the pointer that is called: a
# callback with its `user` in front, and an item, part or expand behind it. rows.known lists them
# all. It may only shrink, until one function does each.
#
#   tests/tools/rows.sh           the counts, against rows.known
#   tests/tools/rows.sh list      the lines
#   tests/tools/rows.sh known     what rows.known is to hold
dir=build/rows
. tests/rig/shell_rig
. tests/tools/refs
fresh_dir
refs_made

grep -E '^[^ ]+ [^ ]+ [a-z]+ \(\*\)\(void \*, .*dlp_(item|part|expand|tar_sample) \*' $refs/points |
    awk '{ print "calls", $1, $2 }' >$dir/found
awk "$code_awk"'
FNR == 1 { in_comment = 0; head = ""; name = "" }
{ code = bare($0) }
code ~ /^[A-Za-z_]/ { head = "" }
name == "" { head = head " " code }
name == "" && match(head, /^[^;]*\) \{/) {
    name = head; gsub(/DLPI_(PRINTF|TARGET)\([^()]*\)/, "", name)
    sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
}
code ~ /STORE_[A-Z]+\(&?[a-z>-]*(running|at_once\[.*\]),/ {
    print "stores", FILENAME, name, FNR
}
code ~ /^}/ || code ~ /^[A-Za-z_].*}$/ { name = ""; head = "" }
' $(ls src/*/*.h | grep -v '^src/\(api\|doc\|s3\)') | sed 's| src/| |' >>$dir/found
awk '{ n[$1 " " $2 " " $3]++ } END { for (k in n) print k, n[k] }' $dir/found |
    LC_ALL=C sort >$dir/counts

case ${1:-} in
list) cat $dir/found; exit ;;
known)
    echo '# Functions that call a callback of the user, or store the recovery word, and how often:'
    echo '# rows.sh. They may only become fewer.'
    cat $dir/counts
    exit
    ;;
esac
calls() { grep '^calls' $dir/found | grep "$@" ' \(source\|s3\)/'; }
echo "rows: callbacks that make or change an item are called at $(calls -vc) places of" \
    "$(calls -v | awk '{ print $2 }' | sort -u | wc -l) files, and at $(calls -c) of sources;" \
    "$(grep -c '^stores' $dir/counts) functions store the recovery word, at" \
    "$(grep -c '^stores' $dir/found) places"
counts_held rows
[ $wrong -eq 0 ]
