#!/bin/sh
# README.md, held to what makes it readable: at most 1,800 words with its code, lines of at most 120
# characters, sentences of at most 25 words. Each link leads to a file of the repository, and each
# picture can be read on a dark page, too. The charts of the benchmarks are what their tables say.
# The code is compiled and run by compile/readme-cc.
# tests/tools/readme.sh [FILE]
dir=build/readme_tool
. tests/rig/shell_rig
fresh_dir
page=${1:-README.md}

words=$(wc -w <"$page")
[ "$words" -le 1800 ] || fail "$page: $words words, at most 1800"
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
        grep -q 'fill=.#fff\|{fill:#fff}' "$file" ||
            fail "$file: is not there, or has no white ground, and is hard to read on a dark page"
        ;;
    *) [ -e "$file" ] || fail "$page: there is no $link" ;;
    esac
done <$dir/links

# The page of the benchmarks is a summary, and its charts have the numbers of their tables.
lines=$(wc -l <tests/bench/README.md)
[ "$lines" -le 150 ] || fail "tests/bench/README.md: $lines lines, at most 150"
if [ -x /usr/bin/python3 ]; then
    cp -r tests/bench/tables $dir && mkdir $dir/charts
    PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/bench/bench_tables.py $dir/none $dir >$dir/said
    diff -r tests/bench/charts $dir/charts >$dir/differ ||
        fail "make bench-tables draws other charts: $(head -n 3 $dir/differ)"
fi
[ $wrong -eq 0 ]
