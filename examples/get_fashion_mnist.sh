#!/bin/sh
# Put the four Fashion-MNIST files, unpacked, into the directory $1: from $DATA if that is set, else
# from the installed Debian package, else from the package downloaded into $1 (nothing is installed
# and root is not needed; OFFLINE=1 leaves this out).
set -u

to=$1
package=dataset-fashion-mnist
installed=/usr/share/datasets/fashion-mnist
files='train-images-idx3-ubyte train-labels-idx1-ubyte
  t10k-images-idx3-ubyte t10k-labels-idx1-ubyte'

has() { # all four files are in directory $1, gzip'ed or not
    for f in $files; do
        [ -r "$1/$f" ] || [ -r "$1/$f.gz" ] || return 1
    done
}

unpack() { # a file appears under its name only when it is whole
    for f in $files; do
        if [ -r "$1/$f" ]; then
            cp "$1/$f" "$to/$f.part"
        else
            gzip -dc "$1/$f.gz" >"$to/$f.part"
        fi && mv "$to/$f.part" "$to/$f" || { echo "$1/$f: cannot be unpacked" >&2; exit 1; }
    done
}

download() { # leave the package's directory in $found
    [ "${OFFLINE:-0}" != 1 ] || return 1
    command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1 || return 1
    echo "fetching the Debian package $package (31 MB) into $to" >&2
    rm -rf "$to/package"
    mkdir -p "$to/package/lists/partial" "$to/package/cache/archives/partial"
    (
        cd "$to/package" || exit 1
        apt-get -qq download $package >log 2>&1 && exit
        # No lists of packages on this machine, or old ones: fetch some of our own.
        own="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache"
        # shellcheck disable=SC2086
        apt-get -qq $own update >log 2>&1 && apt-get -qq $own download $package >>log 2>&1
    ) || return 1
    dpkg -x "$to"/package/$package*.deb "$to/package/root" || return 1
    found=$to/package/root$installed
}

mkdir -p "$to" || exit 1
if [ -n "${DATA:-}" ]; then
    has "$DATA" || { echo "DATA=$DATA: must hold, gzip'ed or not:" $files >&2; exit 1; }
    unpack "$DATA"
    exit
fi
for f in $files; do
    [ -r "$to/$f" ] || { found=''; break; }
    found=$to
done
[ -z "$found" ] || exit 0
if has $installed; then
    unpack $installed
elif download && has "$found"; then
    unpack "$found"
    rm -rf "$to/package"
else
    cat >&2 <<END
The Fashion-MNIST images are not here. Install the Debian package $package, or put
these four files, gzip'ed (.gz) or not, into a directory and say  make run DATA=that/directory :
  $files
END
    exit 1
fi
