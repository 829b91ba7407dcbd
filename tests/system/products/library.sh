#!/bin/sh
# make lib and make install: a shared library with its soname, which exports what the three headers
# declare and nothing else; headers and dlpipe.pc, with which strangers' programs in C and C++ are
# compiled, and run. And DESTDIR, and one version everywhere. cmake.sh has what is for CMake.
dir=build/library
. tests/rig/shell_rig
fresh_dir

for p in nm readelf pkg-config; do
    command -v $p >/dev/null 2>&1 || skip "$p is not installed"
done

root=$(pwd -P)/$dir/root
quiet() {
    shared "$@" >$dir/said 2>&1 || {
        cat $dir/said
        fail "make $*"
        exit 1
    }
}
quiet install PREFIX="$root"
version=$(sed -n 's/^Version: //p' $root/lib/pkgconfig/dlpipe.pc)
so=$root/lib/libdlpipe.so.$version
for h in dlpipe dlpipe_shm dlpipe_s3; do
    cmp -s $h.h "$root/include/$h.h" || fail "$h.h is not installed"
    head -n 1 $h.h | grep -q "^/\* $h.h - v$version - " || fail "$h.h: not version $version"
done

# The soname, the links to it, and what it needs: libc's own libraries.
readelf -d "$so" | grep -q 'SONAME.*\[libdlpipe.so.0\]$' || fail "soname: $(readelf -d "$so")"
for l in libdlpipe.so libdlpipe.so.0; do
    [ "$(readlink -f "$root/lib/$l")" = "$so" ] || fail "$l does not lead to it"
done
libcs='libc\|libm\|libdl\|libpthread\|libgcc_s\|ld-linux[^]]*'
readelf -d "$so" | grep NEEDED | grep -v "\[\($libcs\)\.so" &&
    fail 'it needs these, too'

# Exported is what is declared: dlp_*, the dlpi_* behind inline functions, and a symbol for linkers.
nm -D --defined-only "$so" | awk '{ print $3 }' | grep -v '^dlpipe_needs_' |
    LC_ALL=C sort >$dir/exported
sed -n 's/^DLPDEF [a-z0-9_ *]*[ *]\(dlpi\{0,1\}_[a-z0-9_]*\)(.*/\1/p' src/api/*.h |
    LC_ALL=C sort -u >$dir/declared
LC_ALL=C comm -3 $dir/exported $dir/declared >$dir/differ
[ ! -s $dir/differ ] || fail "exported, or (indented) declared alone: $(cat $dir/differ)"
[ "$(grep -c '^dlp_' $dir/exported)" -gt 150 ] || fail "exported: $(cat $dir/exported)"
sed -n 's/.*[^a-z0-9_]\(dlpi_[a-z0-9_]*\)(.*/\1/p' src/api/queues.h | sort -u >$dir/called
grep -v '^dlp_' $dir/exported | grep -v -x -f $dir/called && fail 'no inline function calls these'

# Strangers' programs.
PKG_CONFIG_PATH=$root/lib/pkgconfig
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion dlpipe)" = "$version" ] || fail 'pkg-config says another version'
program() { # NAME COMPILER... : with the flags of pkg-config, and run
    name=$1
    shift
    # shellcheck disable=SC2046
    (cd $dir && "$@" -o "$name" $(pkg-config --cflags --libs dlpipe) -lpthread) ||
        fail "$name: does not compile"
    readelf -d $dir/$name | grep -q 'NEEDED.*\[libdlpipe.so.0\]' || fail "$name: not linked to it"
    LD_LIBRARY_PATH=$root/lib timeout 60 $dir/$name >$dir/said || fail "$name: $?, $(cat $dir/said)"
}
cp tests/compile/smoke.c tests/compile/s3_smoke.c $dir
cc="${CC:-cc} -std=c11"
# shellcheck disable=SC2086
{
    program smoke $cc -DUSER_ONLY smoke.c
    program smoke_shm $cc -DUSER_ONLY -DWITH_SHM smoke.c
    program s3_smoke $cc -DUSER_ONLY s3_smoke.c
    for o in -O0 -O2; do # calls of inline functions, inlined or not
        sed 's|^#define DLPIPE_IMPLEMENTATION||; s|"../dlpipe.h"|<dlpipe.h>|' examples/queues.c \
            >$dir/queues.c
        program queues $cc -D_GNU_SOURCE $o queues.c
    done
    printf '#include <dlpipe.h>\n#include <stdio.h>\nint main(void) {\n%s\n%s\n}\n' \
        '    puts(dlp_version());' '    return strcmp(dlp_version(), DLPIPE_VERSION) != 0;' \
        >$dir/version.c
    program version $cc version.c
}
[ "$(cat $dir/said)" = "$version" ] || fail "dlp_version() is $(cat $dir/said), not $version"
# A program of a header with other structs does not begin.
sed 's/_in_one_C_file_[0-9a-f]\{8\}/_in_one_C_file_0123abcd/' $dir/smoke >$dir/other
chmod +x $dir/other
LD_LIBRARY_PATH=$root/lib timeout 60 $dir/other >$dir/said 2>&1 && fail 'other structs: it runs'
grep -q 'dlpipe_needs_.*_of_this_header_in_one_C_file_0123abcd' $dir/said ||
    fail "other structs: $(cat $dir/said)"
if command -v g++ >/dev/null 2>&1; then
    cp examples/cpp/loader.cpp $dir
    program loader_cpp g++ -std=c++17 loader.cpp
    grep -q '^trained, 158 steps' $dir/said || fail "loader_cpp says: $(cat $dir/said)"
fi

# What else is installed: a static library, with which a program needs no other; dlpipe_top; man
# pages; and dlpipe.py, which finds the header and the library from where it is.
(cd $dir && ${CC:-cc} -std=c11 -DUSER_ONLY -DWITH_SHM -I"$root/include" -o static smoke.c \
    "$root/lib/libdlpipe.a" -lpthread -lm -ldl && timeout 60 ./static) ||
    fail 'a program with libdlpipe.a'
"$root/bin/dlpipe_top" -h >$dir/said 2>&1
grep -q 'dlpipe_top' $dir/said || fail "dlpipe_top says $(cat $dir/said)"
readelf -d "$root/bin/dlpipe_top" | grep NEEDED | grep dlpipe && fail 'dlpipe_top needs this'
if [ -x /usr/bin/python3 ]; then
    [ -s "$root/share/man/man3/dlp_pipe_open.3" ] || fail 'no man page of dlp_pipe_open'
    py=$(find "$root" -name dlpipe.py)
    (cd / && env -u DLPIPE_HOME PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="${py%/*}" /usr/bin/python3 \
        -c 'import dlpipe
assert dlpipe.lib._name.startswith("'"$root"'"), dlpipe.lib._name') || fail 'dlpipe.py'
fi

# Packagers: DESTDIR stands in no file.
quiet install PREFIX=/usr LIBDIR=/usr/lib/here DESTDIR="$PWD/$dir/dest"
[ -e $dir/dest/usr/lib/here/libdlpipe.so.0 ] && [ -f $dir/dest/usr/include/dlpipe_s3.h ] &&
    [ -f $dir/dest/usr/include/dlpipe.hpp ] || fail "not installed: $(find $dir/dest)"
grep -q '^libdir=/usr/lib/here$' $dir/dest/usr/lib/here/pkgconfig/dlpipe.pc &&
    grep -q '}/usr/lib/here/libdlpipe.a"' $dir/dest/usr/lib/here/cmake/dlpipe/dlpipe-config.cmake ||
    fail 'dlpipe.pc, dlpipe-config.cmake: the folder of the library'
grep -rl "$dir" $dir/dest/usr/lib/here/pkgconfig $dir/dest/usr/lib/here/cmake &&
    fail 'DESTDIR stands in a file'
grep -rl '@' $dir/dest/usr/lib/here/pkgconfig $dir/dest/usr/lib/here/cmake &&
    fail 'a word of the build stands in a file'

[ $wrong -eq 0 ]
