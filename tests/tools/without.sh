#!/bin/sh
# Kinds of stages can be taken out. In build/without/KIND lie the headers without it, made by
# src/join.awk, and the tests without what their tags say is the kind's. The headers compile without
# a warning, and so few tests pass as fit into a suite. Of several kinds the folder is KIND+KIND.
#
#   tests/tools/without.sh                   the headers without each kind, and without all of them;
#                                            SOAK=1: three tests without each kind, too, and the
#                                            headers without each two
#   tests/tools/without.sh list              the kinds, by their tags in src/api/kinds.h
#   tests/tools/without.sh KINDS headers     the headers alone
#   tests/tools/without.sh KINDS all         and all tests that need no such stage
dir=build/without
. tests/rig/shell_rig
# shellcheck disable=SC2034
few='pipe_basic pipe_ragged samplers'

kinds() {
    sed -n 's/.*KIND(.*\/\* needs: \([a-z ]*\) \*\/.*/\1/p' src/api/kinds.h | tr ' ' '\n' |
        LC_ALL=C sort -u
}

make_aside() { # KINDS
    dir=build/without/$(echo "$1" | tr ' ' +)
    fresh_dir
    for p in dlpipe dlpipe_shm dlpipe_s3; do
        awk -v without="$1" -f src/join.awk src/$p.h.in >"$dir/$p.h" || exit 1
        ! grep -n '/\* needs:' "$dir/$p.h" || fail "$p.h without $1: a tag is left"
    done
    printf '#include "%s"\n' dlpipe.h dlpipe_shm.h dlpipe_s3.h \
        >"$dir/calls.c"
    { echo '#define DLPIPE_IMPLEMENTATION'; cat "$dir/calls.c"; } >"$dir/all.c"
    for c in calls all; do
        ${CC:-cc} -std=c11 -Wall -Wextra -Werror -Wno-misleading-indentation \
            -fsyntax-only "$dir/$c.c" ||
            fail "the headers without $1 do not compile"
    done
}

# Files whose first line names such a kind are left out, of others the lines that end so.
tests_aside() { # KINDS
    cp -r Makefile README.md tests examples "$dir/"
    grep -rlE "/\* needs: ([a-z]+ )*($(echo "$1" | tr ' ' '|')) ([a-z]+ )*\*/" tests \
        --include=*.[ch] |
        while read -r f; do
        case $(sed 1q "$f") in
        "/* needs: "*)
            awk -v without="$1" -f src/join.awk "$f" >"$dir/$f"
            [ -s "$dir/$f" ] || rm "$dir/$f"
            ;;
        *) awk -v without="$1" -f src/join.awk "$f" >"$dir/$f" ;;
        esac
    done
}

names() { # FOLDER: of the tests in C that are left
    for f in "$1"/tests/unit/*/*.c "$1"/tests/system/*/*.c "$1"/tests/model/*.c \
        "$1"/tests/fuzz/*.c; do
        basename "$f" .c
    done
}

run_aside() { # KINDS TESTS
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$dir" test O=-O0 TESTS="$2" >"$dir/log" 2>&1 ||
        { tail -n 40 "$dir/log"; fail "tests without $1 fail: $2"; }
    echo "without $1: $(grep " passed, " "$dir/log")"
}

take_out() { # KINDS [headers|all]
    make_aside "$1"
    [ $wrong -eq 0 ] && [ "${2:-}" != headers ] || return
    tests_aside "$1"
    [ "${2:-}" != all ] || few=$(names "$dir")
    run_aside "$1" "$few"
}

all=$(kinds)
[ "${1:-}" != list ] || { echo "$all"; exit; }
for kind in ${1:-}; do
    echo "$all" | grep -qx "$kind" && continue
    echo "no such kind: $kind; there are:"
    echo "$all"
    exit 1
done
if [ -n "${1:-}" ]; then
    take_out "$1" "${2:-}"
    [ $wrong -eq 0 ]
    exit
fi
for kind in $all; do
    take_out "$kind" "${SOAK:-headers}"
done
[ -z "${SOAK:-}" ] || for one in $all; do
    for two in $all; do
        [ "$one" = "$two" ] || take_out "$one $two" headers
    done
done
take_out "$(echo $all)" headers
[ $wrong -eq 0 ] && echo "without: headers without each of $(echo $all), and without all"
[ $wrong -eq 0 ]
