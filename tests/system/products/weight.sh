#!/bin/sh
# How large is the implementation of all three headers? Its code and constants at -O2 are at most
# 1.15 times those at -Os: gcc keeps what runs seldom small (DLPI_COLD). Without the attribute they
# are 1.39 times those at -Os. Seconds of the processor are printed, and not judged. The limit is
# gcc's; other compilers inline more.
dir=build/weight
. tests/rig/shell_rig
fresh_dir
cc=${WEIGHT_CC:-gcc}
command -v "$cc" >/dev/null 2>&1 || skip "$cc is not installed"
command -v size >/dev/null 2>&1 || skip 'size is not installed'
most=115 # percent

object() { # FLAG: build/weight/all$FLAG.o
    made=build/compile/c11-$cc.o # of tests/compile/matrix
    if [ "$1" = -O2 ] && [ -f "$made" ] &&
        [ -z "$(find dlpipe*.h tests/compile -newer "$made")" ]; then
        cp "$made" $dir/all-O2.o
        return
    fi
    "$cc" -std=c11 -w "$1" -DWITH_SHM -DWITH_S3 -DWITH_DEVICES -c -o "$dir/all$1.o" \
        tests/compile/implementation.c
}

weigh() { # FLAG: bytes of text into $bytes
    (object "$1" && times) >$dir/said 2>&1 || {
        cat $dir/said
        fail "$1 does not compile"
        exit 1
    }
    bytes=$(size "$dir/all$1.o" | awk 'NR == 2 { print $1 }')
    echo "$1: $bytes bytes, $(tail -n 1 $dir/said | tr 'ms' '  ' |
        awk '{ printf "%.1f", $1 * 60 + $2 + $3 * 60 + $4 }') s of the processor"
}

weigh -Os
small=$bytes
weigh -O2
[ $((bytes * 100)) -le $((small * most)) ] ||
    fail "-O2 takes $((bytes * 100 / small)) % of the bytes that -Os takes, and may take $most %"

# A program that leaves out what it does not need: the text of dlpipe.h, and of the whole program.
light() { # NAME MOST FLAGS...: build/weight/NAME.o
    name=$1 limit=$2
    shift 2
    "$cc" -std=c11 -w -O2 -ffunction-sections -fdata-sections "$@" -c -o "$dir/$name.o" \
        tests/compile/implementation.c || fail "$name does not compile"
    bytes=$(size "$dir/$name.o" | awk 'NR == 2 { print $1 }')
    echo "$name: $bytes bytes, at most $limit"
    [ "$bytes" -le "$limit" ] || fail "$name: $bytes bytes, at most $limit"
}
light only_loader 163840 -DDLPIPE_ONLY_LOADER
light with_tokens 185300 -DDLPIPE_ONLY_LOADER -DDLPIPE_WITH_TOKENS
"$cc" -O2 -w -I. -c -o $dir/main.o examples/vendor/main.c &&
    "$cc" -Wl,--gc-sections -o $dir/vendor $dir/main.o $dir/only_loader.o -lpthread ||
    fail 'examples/vendor/main.c is not linked'
bytes=$(size $dir/vendor | awk 'NR == 2 { print $1 }')
echo "vendor: $bytes bytes, at most 177200"
[ "$bytes" -le 177200 ] || fail "examples/vendor/main.c: $bytes bytes, at most 177200"
[ $wrong -eq 0 ]
