#!/bin/sh
# Which functions of more than six lines have no comment above them? For each file of src/ they are
# counted, against comments.known. A public function has its comment in src/api.
#
#   tests/tools/comments.sh           the counts, against comments.known
#   tests/tools/comments.sh list      the functions
#   tests/tools/comments.sh known     what comments.known is to hold
dir=build/comments
. tests/rig/shell_rig
. tests/tools/refs
fresh_dir

refs_homes | awk 'NF > 2 && $3 + 2 > 6 { print $2, $1, $4 }' >$dir/functions
cat src/api/*.h >$dir/api
awk '
FNR == NR {
    while (match($0, /dlp_[a-z0-9_]+\(/)) {
        told[substr($0, RSTART, RLENGTH - 1)]
        $0 = substr($0, RSTART + RLENGTH)
    }
    next
}
$3 == 0 && !($2 in told && $1 !~ /^api/) { print $1, $2 }' $dir/api $dir/functions >$dir/found
awk '{ n[$1]++ } END { for (k in n) print k, n[k] }' $dir/found | LC_ALL=C sort >$dir/counts

case ${1:-} in
list) sed 's|^|src/|' $dir/found; exit ;;
known)
    echo '# Functions of more than six lines without a comment, in each file: comments.sh. They may'
    echo '# only become fewer.'
    cat $dir/counts
    exit
    ;;
esac
echo "comments: $(grep -c . $dir/found) of $(grep -c . $dir/functions) functions of more than six" \
    "lines have no comment"
counts_held comments
[ $wrong -eq 0 ]
