#!/bin/sh
# README.md, held to what makes it readable: at most 2,000 words with its code, 8.5 minutes (230
# words a minute, 100 of code and output), lines of at most 120 characters, sentences of at most 25
# words. Each link leads to a file of the repository, and each picture has colours for a dark page,
# too. The code is compiled and run by compile/readme-cc.
# tests/tools/readme.sh [FILE]
dir=build/readme_tool
. tests/rig/shell_rig
fresh_dir
page=${1:-README.md}

words=$(wc -w <"$page")
[ "$words" -le 2000 ] || fail "$page: $words words, at most 2000"
minutes=$(awk '/^```/ { inside = !inside; next } { n[inside + 0] += NF }
    END { printf "%.1f", n[0] / 230 + n[1] / 100 }' "$page")
awk -v m="$minutes" 'BEGIN { exit m > 8.5 }' || fail "$page: $minutes minutes, at most 8.5"
long=$(awk 'length($0) > 120 { printf " %d", FNR }' "$page")
[ -z "$long" ] || fail "$page: lines of more than 120 characters:$long"

# Sentences: text without code and remarks; a table's cell, a heading and a list's item end one.
awk '
    function end_of() { if (n > 25) print n " words: " text; n = 0; text = "" }
    /^```/ { inside = !inside; end_of(); next }
    inside || /^<!--/ { next }
    /^$/ || /^#/ || /^\*/ || /^\|/ { end_of() }
    {
        gsub(/\]\([^)]*\)/, "]")
        gsub(/\|/, " | ")
        for (i = 1; i <= NF; i++) {
            if ($i == "|") { end_of(); continue }
            if ($i ~ /[A-Za-z0-9]/) n++
            text = text " " $i
            if ($i ~ /[.!?][)"*]*$/) end_of()
        }
    }
    END { end_of() }
' "$page" >$dir/sentences
[ ! -s $dir/sentences ] || fail "$page: sentences of more than 25 words:
$(cat $dir/sentences)"

sed '/^```/,/^```$/d' "$page" | grep -o '](\([^)#]*\))' | sed 's/^](//; s/)$//' |
    sort -u >$dir/links
[ -s $dir/links ] || fail "$page: has no links"
while read -r link; do
    file=${page%"${page##*/}"}$link
    case $link in
    http*) ;;
    *.svg)
        grep -q 'prefers-color-scheme' "$file" ||
            fail "$file: is not there, or has no colours for a dark page"
        ;;
    *) [ -e "$file" ] || fail "$page: there is no $link" ;;
    esac
done <$dir/links

# The page of the benchmarks is a summary (charts.sh holds its charts to their tables).
lines=$(wc -l <tests/bench/README.md)
[ "$lines" -le 150 ] || fail "tests/bench/README.md: $lines lines, at most 150"
echo "readme: $words words, $minutes minutes"
[ $wrong -eq 0 ]
