#!/bin/sh
# Which tests compile the implementation themselves, for seconds each? All others link
# tests/rig/lib.c. Such a test says why in one line in front of its first directive:
#
#   /* own: hook: WHY */    a macro or a hook makes its implementation another one
#   /* own: inside: WHY */  it tests what is inside, beyond tests/rig/inside.h
#
# Both are looked at: the first has such a macro or hook, the second does not compile without the
# implementation. A test that says nothing, or not what is so, could do with public calls: there may
# be none. own.known has the number of those that say so; it may only fall.
#
#   tests/tools/own.sh [known]      known: print what that file is to hold
dir=build/own
. tests/rig/shell_rig
fresh_dir

own=$(grep -lE '^#define DLPIPE_IMPLEMENTATION( |$)' tests/unit/*/*.c tests/system/*/*.c)

# Do the lines before the header define a macro, or include a hook?
is_another() { # FILE
    sed '/^#include ".*\(dlpipe\|\.c"\)/,$d' "$1" |
        grep -v '^#define \(_GNU_SOURCE\|DLPIPE_IMPLEMENTATION\)' |
        grep -q '^ *# *define\|_hook\.h"'
}

compiles_without() { # FILE
    sed 's/^#define DLPIPE_IMPLEMENTATION/#define _GNU_SOURCE/' "$1" |
        ${CC:-cc} -std=c11 -Werror=implicit-function-declaration -iquote "$(dirname "$1")" \
            -fsyntax-only -x c - 2>/dev/null
}

reason() { # FILE
    sed -n '/^#/q; s/^\/\* own: \([a-z]*\): .* \*\/$/\1/p' "$1"
}

could() { # FILE WHY
    fail "$1: $2"
    echo "$1" >>$dir/public
}

: >$dir/public
for f in $own; do
    echo "$(reason "$f") $f" >>$dir/reasons
    [ "${1:-}" != known ] || continue
    case $(reason "$f") in
    hook) is_another "$f" || could "$f" 'no macro and no hook before the header' ;;
    inside) ! compiles_without "$f" || could "$f" 'it needs no implementation of its own' ;;
    *) could "$f" 'it does not say why it compiles an implementation of its own' ;;
    esac
done
{
    echo '# Tests that compile the implementation themselves: own.sh.'
    echo "tests with a hook $(grep -c '^hook ' $dir/reasons)"
    echo "tests of what is inside $(grep -c '^inside ' $dir/reasons)"
    echo "of tests/rig $(grep -l '^#define DLPIPE_IMPLEMENTATION' tests/rig/* | wc -l)"
} >$dir/counts
[ "${1:-}" != known ] || { cat $dir/counts; exit; }
counts_held own
all=$(printf '%s\n' tests/unit/*/*.c tests/system/*/*.c | wc -l)
echo "own: $(echo "$own" | wc -l) of $all tests compile an implementation of their own:" \
    "$(grep -c '^hook ' $dir/reasons) with a hook, $(grep -c '^inside ' $dir/reasons) of what is" \
    "inside; $(wc -l <$dir/public) could do with public calls"
[ $wrong -eq 0 ]
