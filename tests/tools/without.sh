#!/bin/sh
# Parts of the headers can be left out: kinds of stages, sources, pictures. In build/without/PART
# lie the headers without it, made by src/join.awk, and the tests without what their tags say is
# the part's. The headers compile without a warning. Of several parts the folder is PART+PART.
#
#   tests/tools/without.sh                   the headers without each part, without all, and with
#                                            the tokens alone; SOAK=1: three tests without each
#                                            part, too, and the headers without each two
#   tests/tools/without.sh list              the parts: the words of all tags in src/
#   tests/tools/without.sh PARTS headers     the headers alone
#   tests/tools/without.sh PARTS all         and all tests that need no such part
#   tests/tools/without.sh PARTS with        the headers with these parts and no others, in
#                                            build/with/PARTS. The loader is always there
dir=build/without
. tests/rig/shell_rig
# shellcheck disable=SC2034
few='pipe_basic pipe_ragged samplers'

parts() {
    grep -rhoE '/\* needs: [a-z ]+ \*/' src | tr -d '/*' | tr ' ' '\n' | grep -vxE 'needs:|' |
        LC_ALL=C sort -u
}

# The parts that some parts want, and these.
wanted() {
    for part in $1; do
        case $part in
        pack) echo parts pack ;;
        lines) echo files lines ;;
        *) echo "$part" ;;
        esac
    done
}

make_aside() { # PARTS FOLDER
    dir=build/$2
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

# Files whose first line names such a part are left out, of others the lines that end so.
tests_aside() { # PARTS
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

run_aside() { # PARTS TESTS
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$dir" test O=-O0 TESTS="$2" >"$dir/log" 2>&1 ||
        { tail -n 40 "$dir/log"; fail "tests without $1 fail: $2"; }
    echo "without $1: $(grep " passed, " "$dir/log")"
}

take_out() { # PARTS [headers|all]
    make_aside "$1" "without/$(echo "$1" | tr ' ' +)"
    [ $wrong -eq 0 ] && [ "${2:-}" != headers ] || return
    tests_aside "$1"
    [ "${2:-}" != all ] || few=$(names "$dir")
    run_aside "$1" "$few"
}

all=$(parts)

leave_in() { # PARTS: the headers with these alone
    want=$(wanted "$1" | tr ' ' '\n')
    make_aside "$(echo "$all" | grep -vxF "$want" | tr '\n' ' ' | sed 's/ $//')" \
        "with/$(echo "$1" | tr ' ' +)"
}

[ "${1:-}" != list ] || { echo "$all"; exit; }
for part in ${1:-}; do
    echo "$all" | grep -qx "$part" && continue
    [ "$part" != loader ] || [ "${2:-}" != with ] || continue
    echo "no such part: $part; there are:"
    echo "$all"
    exit 1
done
if [ "${2:-}" = with ]; then
    leave_in "$1"
    [ $wrong -eq 0 ] && echo "$dir: dlpipe.h dlpipe_shm.h dlpipe_s3.h"
    [ $wrong -eq 0 ]
    exit
fi
if [ -n "${1:-}" ]; then
    take_out "$1" "${2:-}"
    [ $wrong -eq 0 ]
    exit
fi
for part in $all; do
    take_out "$part" "${SOAK:-headers}"
done
[ -z "${SOAK:-}" ] || for one in $all; do
    for two in $all; do
        [ "$one" = "$two" ] || take_out "$one $two" headers
    done
done
take_out "$(echo $all)" headers

# A trainer on tokens takes half of the code, and learns the same.
leave_in "loader tokens"
reduced=$dir
dir=build/without/tokens_alone
fresh_dir
cat >$dir/tokens.c <<'EOF'
#define DLPIPE_IMPLEMENTATION
#include "dlpipe.h"
#include <stdio.h>
int main(int argc, char **argv) {
    const char *path = argv[argc - 1];
    dlp_tokens_desc d = {.paths = &path, .n_paths = 1, .format = DLP_TOKENS_U16, .length = 100};
    dlp_source *tokens = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error e;
    unsigned long sum = 0;
    if (dlp_tokens_open(&tokens, &d, &e) != DLP_OK) return puts(e.message), 1;
    dlp_loader_desc l = {.source = tokens, .batch_size = 8, .num_workers = 2, .shuffle = 1};
    if (dlp_loader_open(&p, &l, &e) != DLP_OK) return puts(e.message), 1;
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        for (uint32_t i = 0; i < b->count * 101; i++)
            sum = 31 * sum + ((const uint16_t *)b->fields[0].data)[i];
        dlp_pipe_release(p, b);
    }
    if (dlp_pipe_close(p) != DLP_OK) return 1;
    dlp_source_close(tokens);
    return printf("%lu\n", sum) < 0;
}
EOF
head -c 200002 /dev/urandom >$dir/shard.bin
for h in "$reduced" .; do
    ${CC:-cc} -std=c11 -w -O0 -I"$h" -c -o $dir/tokens.o $dir/tokens.c &&
        ${CC:-cc} -o $dir/tokens $dir/tokens.o -lpthread && $dir/tokens $dir/shard.bin \
        >"$dir/said" || fail "tokens, with $h/dlpipe.h: $(cat "$dir/said")"
    size $dir/tokens.o | awk 'NR == 2 { print $1 }' >>$dir/bytes
    cat "$dir/said" >>$dir/sums
done
[ "$(sort -u $dir/sums | wc -l)" -eq 1 ] || fail "the headers give other rows: $(cat $dir/sums)"
echo "bytes of code with the loader and tokens, and with all: $(tr '\n' ' ' <$dir/bytes)"
awk '{ n[NR] = $1 } END { exit !(NR == 2 && 2 * n[1] <= n[2]) }' $dir/bytes ||
    fail 'more than half of the code is left'
[ $wrong -eq 0 ] && echo "without: headers without each of $(echo $all), and without all"
[ $wrong -eq 0 ]
