#!/bin/sh
# The client against real servers, which this starts side by side and ends: Ceph's radosgw and
# OpenStack Swift. Both check signatures, Swift the region too; radosgw has TLS, by our authority.
dir=build/s3_servers
servers=tests/servers
. tests/rig/shell_rig

# use KIND: what a server is asked, in an environment that names it.
use() {
    $servers/s3.py parts given parts 5242880 5242880 77777 &&
        { [ "$1" = swift ] || $servers/s3.py public given; } || return
    while [ ! -f $dir/compiled ]; do sleep 0.05; done
    export ODD_KEYS="$dir/$1.keys" CA_FILE=$dir/ca.pem
    timeout -k 2 150 $dir/real "$1" || return
    # What the client put is there for others, too, and nothing else.
    $servers/s3.py check odd "$ODD_KEYS" || return
    echo "$S3_SERVER_DIR" >"$dir/$1.good"
    # However the script ends, nothing of the server is left.
    [ "$1" = swift ] || kill -s KILL $PPID
}

# gone KIND: are the processes and the directory of a server gone, within 20 seconds?
gone() {
    for _ in $(seq 100); do
        left=$(grep -lsf "$dir/$1.good" /proc/[0-9]*/cmdline)
        [ -z "$left" ] && [ ! -e "$(cat "$dir/$1.good")" ] && return
        sleep 0.2
    done
    fail "$1: left: $left $(ls -d "$(cat "$dir/$1.good")")"
}

case ${1:-} in
use)
    use "$2"
    exit
    ;;
esac

fresh_dir
{ command -v radosgw && command -v ceph-osd; } >/dev/null ||
    skip 'there is no radosgw (radosgw ceph-mon ceph-osd ceph-base ceph-common)'
command -v swift-proxy-server >/dev/null ||
    skip 'there is no swift (swift-proxy swift-account swift-container swift-object)'
command -v openssl >/dev/null || skip 'there is no openssl'
printf '#include <openssl/ssl.h>\n' | ${CC:-cc} -E -x c - >/dev/null 2>&1 ||
    skip 'there is nothing of OpenSSL to compile with (libssl-dev)'

# An authority, a certificate of its for names below s3.localhost, and one that is over.
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
        -subj '/CN=authority of a test' -keyout $dir/ca.key -out $dir/ca.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=s3.localhost' \
        -keyout $dir/server.key -out $dir/server.csr
    : >$dir/index.txt
    cat >$dir/ca.cnf <<X
[ca]
default_ca = d
[d]
database = $dir/index.txt
new_certs_dir = $dir
rand_serial = yes
default_md = sha256
policy = p
unique_subject = no
x509_extensions = v
[p]
commonName = supplied
[v]
subjectAltName = DNS:s3.localhost,DNS:*.s3.localhost,IP:127.0.0.1
X
    for which in valid:-days:2: over:-startdate:20200101000000Z:-enddate:20200201000000Z; do
        name=${which%%:*}
        # shellcheck disable=SC2046
        openssl ca -batch -notext -config $dir/ca.cnf -cert $dir/ca.pem -keyfile $dir/ca.key \
            $(echo "${which#*:}" | tr ':' ' ') -in $dir/server.csr -out "$dir/$name.crt"
        cat $dir/server.key "$dir/$name.crt" >"$dir/$name.pem"
    done
}
authority >$dir/openssl.log 2>&1 || fail "certificates: $(cat $dir/openssl.log)"

(
    ${CC:-cc} -std=c11 -Wall -Wextra -O0 -o $dir/real $servers/real.c -lssl -lcrypto -lpthread \
        >$dir/compiler 2>&1
    echo $? >$dir/compiled.new
    mv $dir/compiled.new $dir/compiled
) &
$servers/radosgw.py --tls $dir/valid.pem --tls $dir/over.pem -- \
    sh tests/system/s3/s3_servers.sh use radosgw \
    >$dir/radosgw.out 2>&1 &
radosgw=$!
$servers/swift_s3.py -- sh tests/system/s3/s3_servers.sh use swift >$dir/swift.out 2>&1 &
swift=$!
wait $swift || fail "swift: exit code $?: $(cat $dir/swift.out)"
wait $radosgw
if [ $? -eq 137 ] && [ -s $dir/radosgw.good ]; then
    gone radosgw
else
    fail "radosgw: $(cat $dir/radosgw.out)"
fi
[ ! -s $dir/swift.good ] || gone swift
[ "$(cat $dir/compiled)" = 0 ] || fail "it does not compile: $(cat $dir/compiler)"
[ $wrong -eq 0 ]
