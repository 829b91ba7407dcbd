#!/bin/sh
# examples/vendor for Windows, by its Makefile and its CMakeLists.txt with mingw-w64; its program
# in C++ with SOAK=1, by zig. The programs run by Wine, and so do examples, which say what they say
# on this system. 78 without mingw-w64 and Wine, which "make deps" installs.
dir=build/vendor_windows
. tests/rig/shell_rig
fresh_dir
unavailable() {
    echo "$1 (make deps)"
    exit 78
}
cross=x86_64-w64-mingw32-gcc
command -v $cross >/dev/null 2>&1 || unavailable 'mingw-w64 is not installed'
sh tests/compile/matrix wine >/dev/null || unavailable 'wine64 is not installed'
make=$(command -v gmake || command -v make)
quiet_make() { env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS "$make" -s --no-print-directory "$@"; }
quiet_make build/wine/system.reg

mkdir -p $dir/tree/examples
cp dlpipe.h $dir/tree
cp -r examples/vendor examples/cpp $dir/tree/examples
vendor=$dir/tree/examples/vendor
version=$(sed -n '1s/.* - v\([0-9.]*\) - .*/\1/p' dlpipe.h)

run() { # PROGRAM: it says what it should
    sh tests/compile/matrix wine "$1" >$dir/said || fail "$1: exit code $?"
    [ "$(tr -d '\r' <$dir/said)" = "dlpipe $version: the sum is 9900" ] ||
        fail "$1 says $(cat $dir/said)"
}
silent() { # NAME COMMAND...: it ends well, and no compiler warns
    name=$1
    shift
    "$@" >$dir/$name.said 2>&1 || fail "$name: exit code $?: $(cat $dir/$name.said)"
    grep 'warning:' $dir/$name.said && fail "$name: it warns"
}

silent make quiet_make -C $vendor CC=$cross CFLAGS='-O1 -Wall -Wextra' main.exe
run $vendor/main.exe
silent again quiet_make -q -C $vendor CC=$cross main.exe # it is made once

if command -v cmake >/dev/null 2>&1; then
    silent cmake cmake -S $vendor -B $dir/cmake -DCMAKE_SYSTEM_NAME=Windows \
        -DCMAKE_C_COMPILER=$cross -DCMAKE_CXX_COMPILER=NOTFOUND -DCMAKE_BUILD_TYPE=None \
        -DCMAKE_C_FLAGS='-O0 -Wall -Wextra'
    silent cmake_build cmake --build $dir/cmake
    run $dir/cmake/main.exe
fi

# The other headers stay on Linux, and say so in one error.
for h in dlpipe_shm dlpipe_s3; do
    $cross -std=c11 -DWANTED="\"../../$h.h\"" -fsyntax-only tests/compile/refused.c 2>$dir/said
    [ "$(grep -c 'error:' $dir/said)" -eq 1 ] && grep -q "error: .*$h.h wants 64-bit Linux" \
        $dir/said || fail "$h.h: $(cat $dir/said)"
done

# With the implementation that the Makefile has made.
for example in loader mixture pack; do
    linked examples/$example.c $dir/$example && $dir/$example >$dir/here ||
        fail "$example: exit code $?"
    $cross -std=c11 -O0 -w -DDLPIPE_IMPLEMENTATION_DONE -o $dir/$example.exe \
        examples/$example.c $vendor/dlpipe.o || fail "$example: it does not compile"
    sh tests/compile/matrix wine $dir/$example.exe 2>/dev/null | tr -d '\r' >$dir/there
    [ -s $dir/here ] && cmp -s $dir/here $dir/there ||
        fail "$example says otherwise: $(diff $dir/here $dir/there)"
done

# Its first program takes minutes, as zig compiles the library of C++.
zig=$PWD/build/zig/ziglang/zig
if [ -n "${SOAK:-}" ] && [ -x "$zig" ]; then
    ZIG_GLOBAL_CACHE_DIR=$PWD/build/zig/cache ZIG_LOCAL_CACHE_DIR=$PWD/build/zig/cache
    export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
    rm -f $vendor/*.o $vendor/*.exe
    silent zig quiet_make -C $vendor CC="$zig cc -target x86_64-windows-gnu" LDFLAGS= \
        CXX="$zig c++ -target x86_64-windows-gnu" CFLAGS=-O1 CXXFLAGS=-O1
    run $vendor/main.exe
    run $vendor/main_cxx.exe
fi
[ $wrong -eq 0 ]
