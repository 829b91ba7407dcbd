#!/bin/sh
# Do the numbered lists in the comments of the headers have the shape of lists? A number begins its
# line, numbers follow each other, and the other lines of an item begin where its text begins.
dir=build/lists
. tests/rig/shell_rig
fresh_dir

shapes() {
    awk '
    function say(what) { print FILENAME ":" FNR ": " what ": " $0 }
    FNR == 1 { n = 0 }
    match($0, /[^ *\/"|] [1-9]  [A-Z][a-z]/) { say("a number inside a line") }
    match($0, /^ *[1-9]  [A-Z]/) {
        at = RLENGTH; was = n; n = substr($0, at - 3, 1) + 0
        if (n != 1 && n != was + 1) say("number " n " behind " was)
        last = !/[.:;)]$/
        next
    }
    n > 0 {
        match($0, /^ */)
        if (RLENGTH == length($0) || RLENGTH < at - 4) { n = 0; next }
        if (RLENGTH == at - 4 && $0 !~ /^ *[*]\//) { if (last) say("outside its item"); n = 0 }
        else if (RLENGTH < at - 1) say("outside its item")
    }
    { last = n > 0 && $0 !~ /[.:;)]$/ }' "$@"
}
printf '   1  One.\n   2  Two and\n   more. 3  Three.\n' >$dir/broken
[ "$(shapes $dir/broken | wc -l)" -eq 2 ] || fail "lists: a broken list is not seen"
# shellcheck disable=SC2046
found=$(shapes $(ls src/*/*.h src/*.in) README.md tests/README.md)
[ -z "$found" ] || fail "$found"
echo "lists: $(grep -hcE '^ *[1-9]  [A-Z]' src/doc/dlpipe.h) items in src/doc/dlpipe.h"
[ $wrong -eq 0 ]
