#!/bin/sh
# examples/vendor, as in a stranger's tree: its Makefile, CMakeLists.txt and meson.build build a
# program in C and one in C++ that run; without a word of the compilers, in an order of includes
# that wants -D_GNU_SOURCE too. 77 where cmake or meson is missing: the others have been tried then.
dir=build/vendor
. tests/rig/shell_rig
fresh_dir

mkdir -p $dir/tree/examples
cp dlpipe.h $dir/tree
cp -r examples/vendor examples/cpp $dir/tree/examples
vendor=$PWD/$dir/tree/examples/vendor
missing=''
command -v g++ >/dev/null 2>&1 || skip 'g++ is not installed'

run() { # BUILD: both programs of it
    for p in main main_cxx; do
        timeout 60 "$1/$p" >$dir/said || fail "$1/$p: exit code $?"
        [ "$(cat $dir/said)" = "dlpipe $version: the sum is 9900" ] || fail "says $(cat $dir/said)"
    done
}
silent() { # NAME COMMAND...: it ends well, and no compiler warns
    name=$1
    shift
    "$@" >$dir/$name.said 2>&1 || fail "$name: exit code $?: $(cat $dir/$name.said)"
    grep 'warning:' $dir/$name.said && fail "$name: it warns"
}
version=$(sed -n '1s/.* - v\([0-9.]*\) - .*/\1/p' dlpipe.h)
[ "$(grep -c . examples/vendor/dlpipe.c)" -eq 2 ] || fail 'dlpipe.c: not two lines'

silent make env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$vendor" \
    CFLAGS='-O0 -Wall -Wextra' CXXFLAGS='-O0 -Wall -Wextra'
run "$vendor"

# What its comment says of a header that is forced in: one clear error, and the flag that mends it.
printf '#include <stdio.h>\n' >$dir/config.h
early="${CC:-cc} -std=c11 -I. -include $dir/config.h -fsyntax-only examples/vendor/dlpipe.c"
$early 2>$dir/said && fail 'it compiles behind a system header'
grep -q 'error: .*before any system header, or -D_GNU_SOURCE' $dir/said || fail "$(cat $dir/said)"
$early -D_GNU_SOURCE || fail 'it does not compile with -D_GNU_SOURCE'

if command -v cmake >/dev/null 2>&1; then
    silent cmake cmake -S "$vendor" -B $dir/cmake -DCMAKE_BUILD_TYPE=None \
        -DCMAKE_C_FLAGS='-Wall -Wextra' -DCMAKE_CXX_FLAGS='-Wall -Wextra'
    silent cmake_build cmake --build $dir/cmake
    run $dir/cmake
else
    missing="$missing cmake"
fi

# Meson's by clang where it is, which takes a third as long.
clang=''
! command -v clang++ >/dev/null 2>&1 || clang='CC=clang CXX=clang++'
if command -v meson >/dev/null 2>&1 && command -v ninja >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    silent meson env $clang meson setup -Doptimization=0 -Ddebug=false $dir/meson "$vendor"
    silent meson_build ninja -C $dir/meson
    run $dir/meson
else
    missing="$missing meson or ninja-build"
fi

[ $wrong -eq 0 ] && [ -n "$missing" ] && skip "not installed:$missing; the rest is well"
[ $wrong -eq 0 ]
