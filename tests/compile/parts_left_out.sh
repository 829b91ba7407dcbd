#!/bin/sh
# Parts of the headers can be left out by macros (src/parts, >>options). Each part alone is left
# out, all are, and each alone is kept: the headers compile without a warning. What a program
# declares is the same with any macro, so a file that knows no macro is linked to an implementation
# with each. A call of a part that is left out is an error in words, and so are macros that
# contradict. A table whose verb is left out is refused by the macro's name. SOAK=1: each part is
# linked, and a few tests run without it.
dir=build/parts_left_out
. tests/rig/shell_rig
fresh_dir
cc=${CC:-cc}
quick=$cc # for objects: clang takes a third as long
! command -v clang >/dev/null 2>&1 || quick=clang
warn='-std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wundef -Werror -Wno-misleading-indentation'
parts=$(awk '!/^#/ { print toupper($1) }' src/parts)
all=tests/compile/implementation.c

# Print what a file of a program sees, a word on each line, without what makes a call an error.
declared() { # FLAGS...
    $cc -E -P "$@" -x c dlpipe.h | sed 's/__attribute__((error("[^;]*")))//' | tr -s ' \n\t' '\n'
}

refused() { # WORDS FILE FLAGS...
    words=$1 file=$2
    shift 2
    ! $quick -std=c11 -O1 -I. "$@" -c -o $dir/refused.o "$file" 2>$dir/said || fail "$* compiles"
    grep -q "error.*$words" $dir/said || fail "$*: not '$words': $(head -n 3 $dir/said)"
}

$cc -std=c11 -I. -DUSER_ONLY -c -o $dir/smoke.o tests/compile/smoke.c || exit 1
cat >$dir/verbs.c <<'CODE'
#include "dlpipe.h"
#include <stdio.h>
int main(void) {
    dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = 1}},
                        {.name = "row", .verb = 0}};
    dlp_error e;
    dlp_plan plan;
    for (nodes[1].verb = 1; nodes[1].verb < DLP_VERBS; nodes[1].verb++)
        if (dlp_nodes_plan(nodes, 2, NULL, &plan, &e) == DLP_ERR_UNSUPPORTED)
            printf("%s\n", e.message);
    return 0;
}
CODE
$cc -std=c11 -I. -c -o $dir/verbs.o $dir/verbs.c || exit 1
declared >$dir/declared

linked_to() { # NAME: of an object of the implementation
    $cc -o $dir/smoke $dir/smoke.o "$dir/$1.o" -lpthread -ldl && $dir/smoke >$dir/said ||
        fail "smoke.c with $1: $(cat $dir/said)"
    $cc -o $dir/verbs $dir/verbs.o "$dir/$1.o" -lpthread -ldl && $dir/verbs >$dir/verbs.said ||
        fail "verbs with $1"
}

for part in $parts; do
    case $part in PARTS | SPLIT) also='-DWITH_S3 -DWITH_DEVICES' ;; *) also= ;; esac
    # shellcheck disable=SC2086
    if [ -n "${SOAK:-}" ] || case $part in PARTS | FILES | TRANSFER) true ;; *) false ;; esac then
        $quick $warn -O0 -DDLPIPE_NO_$part -DWITH_SHM $also -c -o $dir/no.o $all ||
            fail "the headers without $part do not compile"
        linked_to no
    else
        $cc $warn -DDLPIPE_NO_$part -DWITH_SHM $also -fsyntax-only $all ||
            fail "the headers without $part do not compile"
        : >$dir/verbs.said
    fi
    ! grep -qv "DLPIPE_NO_$part,\|DLPIPE_NO_\(PACK\|PARTS\|SPLIT\)," $dir/verbs.said ||
        fail "without $part, a verb names another macro: $(cat $dir/verbs.said)"
    declared -DDLPIPE_NO_$part | cmp -s - $dir/declared ||
        fail "DLPIPE_NO_$part changes what a program declares"
    # shellcheck disable=SC2086
    $cc $warn -DDLPIPE_ONLY_LOADER -DDLPIPE_WITH_$part -DWITH_SHM $also -fsyntax-only \
        $all || fail "the headers with $part alone do not compile"
    refused "DLPIPE_WITH_$part contradicts" dlpipe.h -DDLPIPE_ONLY_LOADER -DDLPIPE_WITH_$part \
        -DDLPIPE_NO_$part -x c
    rm -rf $dir/no.o
    [ -z "${SOAK:-}" ] ||
        env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make test B=$dir/$part CC="$cc -DDLPIPE_NO_$part" \
            O=-O0 TESTS='pipe_basic pipe_ragged samplers' >$dir/log 2>&1 ||
        fail "tests without $part: $(tail -n 20 $dir/log)"
done
# shellcheck disable=SC2086
$cc $warn -O0 -DDLPIPE_ONLY_LOADER -DWITH_SHM -DWITH_S3 -DWITH_DEVICES -c -o $dir/only.o $all ||
    fail 'the headers with the loader alone do not compile'
linked_to only
[ "$(grep -c 'compile without DLPIPE_NO_' $dir/verbs.said)" -ge 12 ] ||
    fail "verbs that are left out are not refused in words: $(cat $dir/verbs.said)"
declared -DDLPIPE_ONLY_LOADER | cmp -s - $dir/declared ||
    fail 'DLPIPE_ONLY_LOADER changes what a program declares'

refused 'define that, too' dlpipe.h -DDLPIPE_WITH_TAR -x c
refused 'it wants TAR FILES LINES MIX PARTS' dlpipe.h -DDLPIPE_ONLY_LOADER -DDLPIPE_WITH_TAR \
    -DDLPIPE_NO_LINES -x c
printf '#include "dlpipe.h"\nint main(void) { return dlp_tokens_open(0, 0, 0); }\n' >$dir/call.c
refused 'dlp_tokens_open.*compile without DLPIPE_NO_TOKENS' $dir/call.c -DDLPIPE_NO_TOKENS
printf '#include "dlpipe.h"\nint main(void) { return dlp_tar_open(0, 0, 0); }\n' >$dir/call.c
refused 'dlp_tar_open.*DLPIPE_WITH_TAR' $dir/call.c -DDLPIPE_NO_LINES
[ $wrong -eq 0 ] && echo "parts: without each of" $parts "and with each alone"
[ $wrong -eq 0 ]
