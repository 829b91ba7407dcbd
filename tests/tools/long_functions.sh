#!/bin/sh
# Which functions of src/ are longer than 50 lines, from the line with its name to the brace that
# closes it? Those of today stand in long_functions.known, which may only shrink: there is no other
# one, none is longer than there, and a line that no longer holds fails, too.
#
#   tests/tools/long_functions.sh [list]     list: print them, for that file
dir=build/long_functions
. tests/rig/shell_rig
fresh_dir

# Lines "FILE FUNCTION LINES". A function is a head that begins in column 1 and ends in ") {", and
# all up to the next "}" in column 1; one in a single line is none that is long.
long_in() { # SRC FILE...
    src=$1
    shift
    awk -v src="$src/" '
    FNR == 1 { head = ""; begun = 0 }
    begun && /^}/ {
        if (FNR - begun + 1 > 50) {
            sub(/^DLPI_(PRINTF|TARGET)\([^()]*\) ?/, "", head)
            sub(/\(.*/, "", head); sub(/.*[ *]/, "", head)
            print substr(FILENAME, length(src) + 1), head, FNR - begun + 1
        }
        head = ""; begun = 0
    }
    begun { next }
    head == "" && /^[A-Za-z_]/ { at = FNR; head = $0 }
    head != "" && at != FNR { head = head $0 }
    head ~ /\) \{$/ { begun = at; next }
    /[;{}]$/ || /^#/ { head = "" }' "$@"
}

# shellcheck disable=SC2046
long_in src $(ls src/*/*.h | LC_ALL=C sort) | LC_ALL=C sort >$dir/found
if [ "${1:-}" = list ]; then
    echo '# What long_functions.sh finds today: functions of more than 50 lines. This list may only'
    echo '# shrink.'
    cat $dir/found
    exit
fi

# One of 50 lines is not found, one of 51 is, whatever its head looks like.
sized() { # LINES HEAD
    echo "$2 {"
    awk -v n="$1" 'BEGIN { for (i = 2; i < n; i++) print i == 9 ? "done:" : "    a++;" }'
    echo '}'
}
mkdir -p $dir/src/row
{
    echo 'struct record {'
    awk 'BEGIN { for (i = 0; i < 60; i++) print "    int a;" }'
    echo '};'
    sized 50 'static int fits(int a)'
    sized 51 'DLPDEF const char *a_line_more(int a)'
    sized 52 'DLPI_PRINTF(1, 2) static int says(const char *format,
                                                        ...)'
} >$dir/src/row/probe.h
said=$(long_in $dir/src $dir/src/row/probe.h | tr '\n' ' ')
[ "$said" = 'row/probe.h a_line_more 51 row/probe.h says 53 ' ] ||
    fail "long_functions: the probe has others: $said"

grep -v '^#' tests/tools/long_functions.known | LC_ALL=C sort >$dir/known
new=$(awk 'FILENAME == ARGV[1] { known[$1 " " $2] = $3; next } $3 > known[$1 " " $2] + 0' \
    $dir/known $dir/found)
gone=$(awk 'FILENAME == ARGV[1] { found[$1 " " $2] = $3; next } $3 > found[$1 " " $2] + 0' \
    $dir/found $dir/known)
[ -z "$new" ] || fail "functions of more than 50 lines:
$new"
[ -z "$gone" ] || fail "no longer so, take it out of tests/tools/long_functions.known:
$gone"
echo "long_functions: $(grep -c . $dir/known) known ones"
[ $wrong -eq 0 ]
