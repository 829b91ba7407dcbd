#!/bin/sh
# Which tests compile the implementation themselves, for seconds each? All others link
# tests/rig/lib.c. A test of public calls, and of those in tests/rig/inside.h, may not: one that
# compiles without the implementation is told here. It may if a macro or a hook before the header
# makes its implementation another one. own.known has the number of those that do; it may only fall.
#
#   tests/tools/own.sh [known]      known: print what that file is to hold
dir=build/own
. tests/rig/shell_rig
fresh_dir

own=$(grep -l '^#define DLPIPE_IMPLEMENTATION' tests/unit/*/*.c tests/system/*/*.c)

# Do the lines before the header define a macro, or include a hook?
is_another() { # FILE
    sed '/^#include ".*dlpipe/,$d' "$1" |
        grep -v '^#define \(_GNU_SOURCE\|DLPIPE_IMPLEMENTATION\)' |
        grep -q '^ *# *define\|_hook\.h"'
}

compiles_without() { # FILE
    sed 's/^#define DLPIPE_IMPLEMENTATION/#define _GNU_SOURCE/' "$1" |
        ${CC:-cc} -std=c11 -Werror=implicit-function-declaration -iquote "$(dirname "$1")" \
            -fsyntax-only -x c - 2>/dev/null
}

{
    echo '# Tests that compile the implementation themselves: own.sh.'
    echo "tests $(echo "$own" | wc -l)"
    echo "of tests/rig $(grep -l '^#define DLPIPE_IMPLEMENTATION' tests/rig/* | wc -l)"
} >$dir/counts
[ "${1:-}" != known ] || { cat $dir/counts; exit; }
for f in $own; do
    is_another "$f" || ! compiles_without "$f" || fail "$f: it needs no implementation of its own"
done
counts_held own
all=$(printf '%s\n' tests/unit/*/*.c tests/system/*/*.c | wc -l)
echo "own: $(echo "$own" | wc -l) of $all tests compile an implementation of their own"
[ $wrong -eq 0 ]
