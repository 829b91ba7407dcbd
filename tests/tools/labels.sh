#!/bin/sh
# Is each label of an atomic explained once? A label is one or two capitals and a number, in a
# comment. A row of a table explains it: the row begins with the label and two spaces, or with the
# names of functions and then the label, and does not refer to a section (>>impl-claims). Counted
# are labels that two files explain ("twice"), and labels that no file explains ("nowhere").
# dlpipe_s3.h has labels of its own.
#
#   tests/tools/labels.sh           the counts, against labels.known
#   tests/tools/labels.sh list      each such label, and its files
#   tests/tools/labels.sh known     what labels.known is to hold
dir=build/labels
. tests/rig/shell_rig
fresh_dir

# Lines "LABEL explained|used FILE". Words of the language, dtypes, S3 and cards are no labels.
labels_in() { # FILE...
    awk '
    function say(text, how) {
        while (match(text, /(^|[^A-Za-z0-9_])[A-Z][A-Z]?[0-9]+/)) {
            label = substr(text, RSTART, RLENGTH); sub(/^[^A-Z]/, "", label)
            text = substr(text, RSTART + RLENGTH)
            if (text ~ /^[A-Za-z0-9_*]/) continue
            if (label ~ /^([CIUF](8|11|16|17|23|32|64)|S3|N9|H[12]00)$/) continue
            print label, how, FILENAME
        }
    }
    FNR == 1 { inside = 0; sub(/^src\//, "", FILENAME) }
    {
        rest = $0; remark = ""
        while (rest != "") {
            mark = inside ? "*/" : "/*"
            at = index(rest, mark)
            if (inside) remark = remark (at ? substr(rest, 1, at - 1) : rest) " "
            if (!at) break
            inside = !inside; rest = substr(rest, at + 2)
        }
        say(remark, "used")
        if (remark ~ />>/) next
        if (match(remark, /^ *(dlpi_[a-z_]+,? +)*([A-Z][A-Z]?[0-9]+,? )+ +[^ ]/))
            say(substr(remark, 1, RLENGTH), "explained")
    }' "$@" | LC_ALL=C sort -u
}

# Lines "twice|nowhere LABEL FILES".
judged() { # FILE...
    labels_in "$@" | awk '
    { files[$1, $2] = files[$1, $2] " " $3; n[$1, $2]++; all[$1] }
    END {
        for (l in all)
            if (n[l, "explained"] > 1) print "twice", l files[l, "explained"]
            else if (!n[l, "explained"]) print "nowhere", l files[l, "used"]
    }'
}

{
    judged $(ls src/*/*.h | grep -v '^src/\(doc\|s3\|api/s3\)')
    judged src/s3/*.h src/api/s3*.h
} | LC_ALL=C sort >$dir/found
awk '{ n[$1 " " $2] += $1 == "twice" ? NF - 2 : 1 } END { for (k in n) print k, n[k] }' $dir/found |
    LC_ALL=C sort >$dir/counts

case ${1:-} in
list) cat $dir/found; exit ;;
known)
    echo '# Labels that several files explain (how many), and that no file explains: labels.sh.'
    echo '# This list may only shrink.'
    cat $dir/counts
    exit
    ;;
esac
echo "labels: $(grep -c '^twice' $dir/counts) are explained in several files," \
    "$(grep -c '^nowhere' $dir/counts) in none"
counts_held labels
[ $wrong -eq 0 ]
