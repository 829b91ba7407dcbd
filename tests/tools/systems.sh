#!/bin/sh
# How much of src/ knows the operating system? Outside base, shm and s3, which may, each of these
# counts: a call of a function that ISO C does not have (errno is such a call), a header that
# neither ISO C nor the compiler has, a macro that names a system, an identifier that windows.h has
# as a macro, and %zu, which the C library of Windows may not know. clang reads the calls; what ISO
# C has is what its headers declare without any extension. systems.known has the numbers; they may
# only fall.
#
#   tests/tools/systems.sh           the counts, against systems.known
#   tests/tools/systems.sh list      the places
#   tests/tools/systems.sh known     print what systems.known is to hold
dir=build/systems
. tests/rig/shell_rig
. tests/tools/refs
fresh_dir
refs_made
iso='assert ctype errno float inttypes limits math stdarg stdbool stddef stdint stdio stdlib'
iso="$iso string time"
compilers='immintrin arm_neon cpuid sanitizer/asan_interface'

# shellcheck disable=SC2086
printf '#include <%s.h>\n' $iso | clang -std=c11 -fsyntax-only -fno-color-diagnostics \
    -Xclang -ast-dump -x c - | sed -n "s/.*FunctionDecl .* \([a-z][a-z0-9_]*\) '.*/\1/p" >$dir/iso
[ -s $dir/iso ] || fail 'systems: the headers of ISO C cannot be read'
may='^(base|shm|s3)/'
awk 'FNR == NR { iso[$1]; next } !($3 in iso) && $3 !~ /^(__(builtin|atomic)|_mm|dlpi_)/' \
    $dir/iso $refs/others | grep -vE "$may" |
    awk '{ print ($3 == "__errno_location" ? "uses of errno" : "calls"), $0 }' >$dir/found
awk -v may="$may" -v own=" $iso $compilers " "$code_awk"'
FNR == 1 { in_comment = 0; file = FILENAME; sub(/^src\//, "", file) }
{ code = bare($0) }
{ s = " " code " " }
s ~ /[^A-Za-z0-9_](near|far|small|interface)[^A-Za-z0-9_]/ { print "names", file }
file !~ may && /%z[udx]/ { print "formats", file, $0 }
file ~ may || code !~ /^ *#/ { next }
match(code, /# *include <.*>/) {
    h = code; sub(/.*</, "", h); sub(/\.h>.*/, "", h)
    if (!index(own, " " h " ")) print "headers", file, "-", h
}
/_WIN32|__linux__|__APPLE__|__FreeBSD__|__GLIBC__|__unix__/ { print "macros", file, "-", $0 }
' src/*/*.h >>$dir/found
[ "${1:-}" != list ] || { cat $dir/found; exit; }
{
    echo '# Places outside base, shm and s3 that know the operating system: systems.sh.'
    for what in calls 'uses of errno' headers macros names formats; do
        echo "$what $(grep -c "^$what " $dir/found)"
    done
} >$dir/counts
[ "${1:-}" != known ] || { cat $dir/counts; exit; }
counts_held systems
echo "systems: $(grep -v '^#' $dir/counts | tr '\n' ',' | sed 's/,$//; s/,/, /g')" \
    "outside base, shm and s3"
[ $wrong -eq 0 ]
