#!/bin/sh
# What may include and call what in src/: a file includes files of its own folder and of lower
# floors, and names functions and tables of these alone; no file of stages/ includes another of
# stages/; none is longer than 900 lines. A function that nothing names is not there. A manifest
# lists each file after all that it includes, the floors from low to high and the files of a folder
# together; platform.h stands first. A file may declare a struct ahead only if its own floor or a
# lower one defines the struct. What breaks this today is listed in floors.known, which may only
# shrink: a line of it that no longer holds fails, too.
#
#   tests/tools/floors.sh [list]     list: print what breaks the rules, for that file
dir=build/floors
. tests/rig/shell_rig
. tests/tools/refs
fresh_dir
refs_made
levels="api base queue,order pipe wait fail cells slot row work deliver \
    flight,observe,share inputs stages build source,device report open shm,s3"
for p in dlpipe dlpipe_shm dlpipe_s3; do
    awk -v files=1 -f src/join.awk src/$p.h.in >$dir/$p.h.in || exit 1
done

# shellcheck disable=SC2016
floors_awk='
BEGIN {
    n = split(levels, level, " ")
    for (i = 1; i <= n; i++) {
        m = split(level[i], name, ",")
        for (k = 1; k <= m; k++) floor[name[k]] = i
    }
}
'
awk -v levels="$levels" "$floors_awk"'
function say(text) { print text }
FNR == 1 && file != "" && lines > 900 { say(file ": lines") }
FNR == 1 {
    lines = 0; file = FILENAME; sub(/^src\/|^.*floors\//, "", file)
    folder = file; sub(/\/.*/, "", folder)
    manifest = file ~ /\.in$/
}
{ lines = FNR }
/^(typedef )?struct [a-z0-9_]+ [{]/ { home[$1 == "struct" ? $2 : $3] = folder }
/^(typedef )?struct [a-z0-9_]+( [a-z0-9_]+)?;/ && folder != "api" {
    of = $1 == "struct" ? $2 : $3; sub(/;/, "", of); ahead[file " " of] = folder
}
!/^#include "[a-z0-9_]+\/[a-z0-9_]+\.h"/ { next }
{
    split($0, part, "\""); to = part[2]; its = to; sub(/\/.*/, "", its)
    if (manifest) {
        if (!(to in place)) place[to] = ++places
        if (!(its in floor) || to ~ /platform[.]h/) next
        if (its != at[file] && ((file, its) in seen || floor[its] < floor[at[file]]))
            say(file ": " to " stands above its floor")
        at[file] = its; seen[file, its] = 1
        next
    }
    if (!(its in floor)) { say(file " -> " to ": a folder without a floor"); next }
    if (floor[its] > floor[folder] || (folder == "stages" && its == "stages")) say(file " -> " to)
    if (folder == "api" && its != "api") say(file " -> " to)
    if (!(to in place) || !(file in place)) say(file " -> " to ": not in a manifest")
    else if (place[to] > place[file]) say(file " -> " to ": behind it in the manifest")
}
END {
    if (lines > 900) say(file ": lines")
    for (a in ahead) {
        split(a, part, " "); its = home[part[2]]
        if (its == "" || floor[its] > floor[ahead[a]]) say(part[1] ": " part[2] " is of " its)
    }
}
' $dir/dlpipe.h.in $dir/dlpipe_shm.h.in $dir/dlpipe_s3.h.in \
    $(ls src/*/*.h | LC_ALL=C sort) |
    LC_ALL=C sort -u >$dir/found
# clang reads src/ as it is on Linux.
awk -v levels="$levels" -v elsewhere='^base/(darwin|system_windows)[.]h$' "$floors_awk"'
FNR == NR { if (!($1 in home)) home[$1] = $2; next }
{
    of = home[$3]; sub(/\/.*/, "", of); by = $1; sub(/\/.*/, "", by); named[$3]
    if (of != "api" && by != "" && floor[of] > floor[by]) print $1 ": names " $3 " of " home[$3]
}
END {
    for (f in home)
        if (f ~ /^dlpi_/ && !(f in named) && home[f] !~ elsewhere)
            print home[f] ": nothing names " f
}' $refs/homes $refs/uses | LC_ALL=C sort -u >>$dir/found
for f in src/*/*.h; do
    grep -q "^#include \"${f#src/}\"" $dir/*.h.in || echo "${f#src/}: in no manifest"
done >>$dir/found

if [ "${1:-}" = list ]; then
    cat $dir/found
    exit
fi
grep -v '^#' tests/tools/floors.known | LC_ALL=C sort -u >$dir/known
LC_ALL=C sort -u $dir/found -o $dir/found
new=$(LC_ALL=C comm -23 $dir/found $dir/known)
gone=$(LC_ALL=C comm -13 $dir/found $dir/known)
[ -z "$new" ] || fail "against the floors:
$new"
[ -z "$gone" ] || fail "no longer so, take it out of tests/tools/floors.known:
$gone"
echo "floors: $(ls src/*/*.h | wc -l) files, $(grep -c . $dir/known) known violations"
[ $wrong -eq 0 ]
