#!/bin/sh
# Which functions call a row's callback, and which store the word that recovery reads (X2, running)?
# rows.known lists them. It may only shrink, until one function does each.
#
#   tests/tools/rows.sh           the counts, against rows.known
#   tests/tools/rows.sh list      the lines
#   tests/tools/rows.sh known     what rows.known is to hold
dir=build/rows
. tests/rig/shell_rig
fresh_dir

awk "$code_awk"'
FNR == 1 { in_comment = 0; head = ""; name = "" }
{ code = bare($0) }
code ~ /^[A-Za-z_]/ { head = "" }
name == "" { head = head " " code }
name == "" && match(head, /^[^;]*\) \{/) {
    name = head; gsub(/__attribute__\(\([a-z]*\)\)/, "", name)
    sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
}
code ~ /->item\(/ && code !~ /source->item\(/ { print "calls", FILENAME, name, FNR }
code ~ /STORE_[A-Z]+\(&?[a-z>-]*(running|at_once\[.*\]),/ {
    print "stores", FILENAME, name, FNR
}
code ~ /^}/ || code ~ /^[A-Za-z_].*}$/ { name = ""; head = "" }
' $(ls src/*/*.h | grep -v '^src/\(api\|doc\|s3\)') | sed 's| src/| |' >$dir/found
awk '{ n[$1 " " $2 " " $3]++ } END { for (k in n) print k, n[k] }' $dir/found |
    LC_ALL=C sort >$dir/counts

case ${1:-} in
list) cat $dir/found; exit ;;
known)
    echo '# Functions that call the callback of a row or store the recovery word, and how often:'
    echo '# rows.sh. They may only become fewer.'
    cat $dir/counts
    exit
    ;;
esac
echo "rows: $(grep -c '^calls' $dir/counts) functions call the callback of a row;" \
    "$(grep -c '^stores' $dir/counts) store the recovery word, at" \
    "$(grep -c '^stores' $dir/found) places"
counts_held rows
[ $wrong -eq 0 ]
