# Each field of what a program fills in stands in the table of the walk (tests/rig/fields.h), or in
# tests/rig/fields.elsewhere with the test that has it ("-": none, and why); and no other stands
# there.
cd "$(dirname "$0")/../../.." || exit 1
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

others='dataset|source|field|async|batch_sampler|device|counter|guard_field|part_file|part_files'
others="$others|array_column|trace_window|budget|node_[a-z]+"
cat src/api/*.h | awk -f tests/tools/fields.awk |
    grep -E "_desc |^dlp_($others) " |
    sort >"$out/api"
of='(VALUE|WITH|WHOLE|INNER|INNER_WITH)'
sed -nE "s/^ *$of\((dlp_[a-z0-9_]+), ([a-z0-9_]+),.*/\2 \3/p" tests/rig/fields.h >"$out/walked"
awk '{print $1, $2}' tests/rig/fields.elsewhere | cat - "$out/walked" | sort >"$out/listed"

failed=0
told() { # FILE WORDS
    [ -s "$1" ] || return
    sed "s/^/$2: /" "$1"
    failed=1
}
n=$(wc -l <"$out/api")
[ "$n" -gt 350 ] || { echo "only $n fields are found in src/api"; failed=1; }
comm -23 "$out/api" "$out/listed" >"$out/missing"
comm -13 "$out/api" "$out/listed" >"$out/stale"
uniq -d "$out/listed" >"$out/twice"
told "$out/missing" 'a field that no table has'
told "$out/stale" 'no such field'
told "$out/twice" 'listed twice'
while read -r type field test why; do
    if [ "$test" = - ]; then
        [ -n "$why" ] || { echo "$type $field: why?"; failed=1; }
    else
        grep -qsw "$field\|$type" "$test" || { echo "$type $field: not in $test"; failed=1; }
    fi
done <tests/rig/fields.elsewhere
echo "fields_listed: $(wc -l <"$out/api") fields, $(wc -l <"$out/walked") of them walked"
exit $failed
