#!/bin/sh
# How large are the records of a pipe, the public face and the products? Counted are the bytes of
# structs, the public functions (dlp_* of src/api), the descs and their fields; none may be above
# that of sizes.known. The lines of code of each product are told: rooms.sh has their budgets.
# Comments and blank lines do not count.
#
#   tests/tools/sizes.sh [known]     known: print what sizes.known is to hold
dir=build/sizes
. tests/rig/shell_rig
fresh_dir

{
    printf '#include "%s"\n' pipe/pipe.h flight/in_flight.h stdio.h
    echo 'int main(void) {'
    for s in dlpi_stage dlpi_worker dlp_pipe dlpi_attempt; do
        printf '    printf("bytes of struct %s %%zu\\n", sizeof(struct %s));\n' $s $s
    done
    echo '    return 0;'
    echo '}'
} >$dir/sizes.c
${CC:-cc} -std=c11 -D_GNU_SOURCE -w -O1 -Isrc -I. -o $dir/sizes $dir/sizes.c || exit 1

awk "$code_awk"'
function members(s,    part, n, i, all) { # a pointer to a function is one
    n = split(s, part, ";")
    for (i = 1; i < n; i++) all += part[i] ~ /[(]/ ? 1 : gsub(/,/, "", part[i]) + 1
    return all
}
FNR == 1 { in_comment = 0; desc = "" }
{ code = bare($0) }
/^(DLPDEF|DLPI_INLINE|static) / && match(code, /[ *]dlp_[a-z0-9_]+\(/) {
    name[substr(code, RSTART + 1, RLENGTH - 2)]
}
code ~ /^typedef struct dlp_[a-z0-9_]*desc \{/ { descs++; desc = " "; sub(/.*\{/, "", code) }
desc != "" {
    desc = desc code
    if (code ~ /^}|}[^;]*;$/) { sub(/}[^}]*$/, "", desc); fields += members(desc); desc = "" }
}
END {
    for (f in name) functions++
    print "public functions", functions
    print "descs", descs
    print "fields of descs", fields
}' src/api/*.h >$dir/face
for p in dlpipe dlpipe_shm dlpipe_s3; do
    awk -v name="lines of code of $p.h" "$code_awk"'
    FNR == 1 { in_comment = 0 }
    # Lines of src/join.awk do not count: they mark cold functions, and parts that can be left out.
    /^#endif \/\* DLPIPE_NO_[A-Z_]+ \*\/$|^#if.*DLPIPE_NO_|^DLPI_COLD$/ { next }
    bare($0) ~ /[^ ]/ { n++ }
    END { print name, n }' $p.h
done >$dir/products
{ $dir/sizes && cat $dir/face; } >$dir/counts || exit 1

if [ "${1:-}" = known ]; then
    echo '# Bytes of structs, and the public face: sizes.sh. These may only fall.'
    cat $dir/counts
    exit
fi
cat $dir/counts $dir/products
counts_held sizes
[ $wrong -eq 0 ]
