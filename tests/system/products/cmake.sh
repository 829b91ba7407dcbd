#!/bin/sh
# dlpipe in a stranger's project of CMake, by each of the three ways that examples/vendor and make
# install promise: add_subdirectory with all options, FetchContent out of an archive, find_package.
# No compiler warns, each program runs, and wrong versions are not found.
dir=build/cmake
. tests/rig/shell_rig
fresh_dir

command -v cmake >/dev/null 2>&1 || skip 'cmake is not installed'
root=$(pwd -P)
version=$(sed -n '1s/.* - v\([0-9.]*\) - .*/\1/p' dlpipe.h)

project() { # NAME LINES: a project with main.c of the vendored example
    mkdir -p $dir/$1
    cp examples/vendor/main.c tests/compile/smoke.c tests/compile/s3_smoke.c $dir/$1
    printf 'cmake_minimum_required(VERSION 3.18)\nproject(stranger C)\n%s\n' "$2" \
        >$dir/$1/CMakeLists.txt
}
built() { # NAME OPTION...
    name=$1
    shift
    cmake -S $dir/$name -B $dir/$name/b -DCMAKE_BUILD_TYPE=None "$@" >$dir/said 2>&1 &&
        cmake --build $dir/$name/b >>$dir/said 2>&1 || fail "$name: $(tail -n 30 $dir/said)"
    grep -i 'warning' $dir/said && fail "$name: it warns"
}
says() { # NAME PROGRAM WORDS
    timeout 60 $dir/$1/b/$2 >$dir/said 2>&1 || fail "$1, $2: exit code $?"
    [ "$(cat $dir/said)" = "$3" ] || fail "$1, $2 says $(cat $dir/said)"
}
sum="dlpipe $version: the sum is 9900"

# The folder, with worker processes, S3 and devices; where OpenSSL is there, with https. Parts that
# are left out by flags of the project make the compiler's time a third.
less='-Wall -Wextra -DDLPIPE_ONLY_LOADER'
tls=OFF
printf '#include <openssl/ssl.h>\n' | ${CC:-cc} -E -x c - >/dev/null 2>&1 && tls=ON
project folder "set(DLPIPE_SHM ON)
set(DLPIPE_S3 ON)
set(DLPIPE_S3_OPENSSL $tls)
set(DLPIPE_CUDA ON)
add_subdirectory($root/examples/vendor dlpipe)
add_executable(main main.c)
add_executable(shm smoke.c)
target_compile_definitions(shm PRIVATE USER_ONLY WITH_SHM)
add_executable(s3 s3_smoke.c)
target_compile_definitions(s3 PRIVATE USER_ONLY)
foreach(program main shm s3)
    target_link_libraries(\${program} PRIVATE dlpipe::dlpipe)
endforeach()"
built folder -DCMAKE_C_FLAGS="$less -DDLPIPE_WITH_TRANSFER"
says folder main "$sum"
says folder shm ''
says folder s3 ''
has() { # NAME LIBRARY WORD...
    at=$dir/$1/b/$2
    shift 2
    for word in "$@"; do grep -qF "$word" $at || fail "$at has no $word"; done
}
has folder dlpipe/libdlpipe.a dlp_monitor_open dlp_s3_open libcuda.so.1
[ $tls = OFF ] || has folder dlpipe/libdlpipe.a SSL_CTX_new

# An archive of the repository, and no option: dlpipe.h alone, with the flags of the project.
mkdir -p $dir/archive/dlpipe/examples
cp dlpipe.h $dir/archive/dlpipe
cp -r examples/vendor examples/cpp $dir/archive/dlpipe/examples
(cd $dir/archive && cmake -E tar cf ../dlpipe.tar dlpipe)
project fetched "include(FetchContent)
FetchContent_Declare(dlpipe URL $root/$dir/dlpipe.tar SOURCE_SUBDIR examples/vendor)
FetchContent_MakeAvailable(dlpipe)
if(TARGET main_cxx)
    message(FATAL_ERROR \"the examples are targets of the stranger\")
endif()
add_executable(main main.c)
target_link_libraries(main PRIVATE dlpipe::dlpipe)"
built fetched -DCMAKE_C_FLAGS="$less" -DCMAKE_POLICY_DEFAULT_CMP0135=NEW
says fetched main "$sum"
for word in dlp_monitor_open dlp_s3_open libcuda.so.1; do
    grep -qF $word $dir/fetched/b/_deps/dlpipe-build/libdlpipe.a && fail "$word without its option"
done

# Installed.
shared install PREFIX="$root/$dir/root" >$dir/said 2>&1 || fail "make install: $(cat $dir/said)"
project found "find_package(dlpipe ${version%.*} REQUIRED)
find_package(dlpipe REQUIRED)
add_executable(main main.c)
target_link_libraries(main PRIVATE dlpipe::dlpipe)
add_executable(alone main.c)
target_link_libraries(alone PRIVATE dlpipe::static)"
built found -DCMAKE_PREFIX_PATH="$root/$dir/root" -DCMAKE_C_FLAGS='-Wall -Wextra'
says found main "$sum"
[ ! -f $dir/root/lib/libdlpipe.so.0 ] || mv $dir/root/lib/libdlpipe.so.0 $dir/away
$dir/found/b/main >$dir/said 2>&1 && fail 'main does not use the shared library'
says found alone "$sum"
for v in 0.0 0.99 1.0 "$version.1"; do
    project wrong "find_package(dlpipe $v REQUIRED)"
    cmake -S $dir/wrong -B $dir/wrong/b -DCMAKE_PREFIX_PATH="$root/$dir/root" \
        >$dir/said 2>&1 && fail "find_package finds version $v"
    grep -q 'compatible' $dir/said || fail "version $v: $(cat $dir/said)"
done

# Staged by DESTDIR, as packagers do: a program is built from there, before the files move to /usr.
shared install PREFIX=/usr DESTDIR="$root/$dir/staged" >$dir/said 2>&1 ||
    fail "make install: $(cat $dir/said)"
project staged "find_package(dlpipe REQUIRED)
add_executable(alone main.c)
target_link_libraries(alone PRIVATE dlpipe::static)"
built staged -DCMAKE_PREFIX_PATH="$root/$dir/staged/usr"
says staged alone "$sum"
[ $wrong -eq 0 ]
