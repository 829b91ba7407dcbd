#!/bin/sh
# The client against S3 servers that are one program each, which this starts side by side and ends:
# SeaweedFS, MinIO's gateway in JuiceFS, and rclone, which answers ranges with 200 and takes no heed
# of If-Match. All check signatures. "make deps" has them from Python packages.
dir=build/s3_packages
servers=tests/servers
. tests/rig/shell_rig

# use KIND: what a server is asked, in an environment that names it.
use() {
    $servers/s3.py parts given parts 5242880 5242880 77777 || return
    export ODD_KEYS="$dir/$1.keys"
    timeout -k 2 150 $dir/real "$1" && $servers/s3.py check odd "$ODD_KEYS"
}

case ${1:-} in
use)
    use "$2"
    exit
    ;;
esac

fresh_dir
printf '#include <openssl/ssl.h>\n' | ${CC:-cc} -E -x c - >/dev/null 2>&1 ||
    skip 'there is nothing of OpenSSL to compile with (libssl-dev)'
${CC:-cc} -std=c11 -Wall -Wextra -O0 -o $dir/real $servers/real.c -lssl -lcrypto -lpthread \
    >$dir/compiler 2>&1 || fail "it does not compile: $(cat $dir/compiler)"

kinds='seaweedfs juicefs rclone'
for kind in $kinds; do
    {
        $servers/packaged_s3.py "$kind" -- sh tests/system/s3/s3_packages.sh use "$kind" \
            >"$dir/$kind.out" 2>&1
        echo $? >"$dir/$kind.code"
    } &
done
wait
absent=''
for kind in $kinds; do
    case $(cat "$dir/$kind.code") in
    0) ;;
    77) absent="$absent $kind" ;;
    *) fail "$kind: $(cat "$dir/$kind.out")" ;;
    esac
done
[ $wrong -eq 0 ] || exit 1
[ -z "$absent" ] || skip "not there (make deps):$absent"
