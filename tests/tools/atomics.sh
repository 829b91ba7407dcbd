#!/bin/sh
# Where does src/ order one thread's memory before another's? Acquire, release and read-modify-write
# accesses belong into the links (src/queue, and api/queues.h, their inline part) and into sleep and
# wake (base/wake.h, word_wait.h, sleepers.h). What stands elsewhere is listed in atomics.known,
# with how often and why; the list may only shrink: a line of it that no longer holds fails, too.
# Relaxed accesses order nothing, and are not counted.
#
#   tests/tools/atomics.sh          the comparison
#   tests/tools/atomics.sh list     each such access, in the form of atomics.known
#
# dlpipe_shm.h and dlpipe_s3.h (src/shm, src/s3) are counted as a whole.
dir=build/atomics
most=63 # of dlpipe.h
. tests/rig/shell_rig
fresh_dir

# Lines "FILE ACCESS COUNT": the access is the call of the shim with its first argument, no spaces.
found_in() { # SRC FILE...
    src=$1
    shift
    awk -v src="$src/" '
    function bare(s,    n) { # without comments
        if (in_comment) {
            if (!(n = index(s, "*/"))) return ""
            in_comment = 0
            s = substr(s, n + 2)
        }
        while (n = index(s, "/*")) {
            if (!index(substr(s, n), "*/")) { in_comment = 1; return substr(s, 1, n - 1) }
            s = substr(s, 1, n - 1) substr(s, n + index(substr(s, n), "*/") + 1)
        }
        return s
    }
    FNR == 1 { file = substr(FILENAME, length(src) + 1); in_comment = 0 }
    {
        s = bare($0)
        gsub(/[ \t]/, "", s)
        while (match(s, /DLPI_(LOAD_(ACQ|SEQ)|STORE_(REL|SEQ)|(XCHG|ADD|OR|AND|CAS)_[A-Z]+)[(]/)) {
            name = substr(s, RSTART + 5, RLENGTH - 6)
            s = substr(s, RSTART + RLENGTH)
            depth = 0
            for (n = 1; n <= length(s); n++) {
                c = substr(s, n, 1)
                if (c == "(" || c == "[") depth++
                if (c == ")" || c == "]") if (depth-- == 0) break
                if (c == "," && depth == 0) break
            }
            where = file
            if (file ~ /^(shm|s3)\//) { sub(/\/.*/, "/", where); all[where " all"]++ }
            else all[file " " name "(" substr(s, 1, n - 1) ")"]++
        }
    }
    END { for (k in all) print k, all[k] }' "$@" | LC_ALL=C sort
}

# shellcheck disable=SC2046
waits='base/(wake|sleepers|word_wait)'
files=$(ls src/*/*.h | grep -Ev "^src/(queue/.*|$waits|api/(atomics|queues))" |
    LC_ALL=C sort)
# shellcheck disable=SC2086
found_in src $files >$dir/found

if [ "${1:-}" = list ]; then
    cat $dir/found
    exit
fi
awk '!/^(#|$)/ {
    if (NF < 4) print "atomics.known:" FNR ": no reason" >"/dev/stderr"
    print $1, $2, $3
}' tests/tools/atomics.known 2>$dir/bare | LC_ALL=C sort >$dir/known
[ -s $dir/bare ] && fail "$(cat $dir/bare)"
new=$(LC_ALL=C comm -23 $dir/found $dir/known)
gone=$(LC_ALL=C comm -13 $dir/found $dir/known)
[ -z "$new" ] || fail "outside the links and sleep and wake, and not in tests/tools/atomics.known:
$new"
[ -z "$gone" ] || fail "no longer so, take it out of tests/tools/atomics.known:
$gone"
count=$(awk '$1 !~ /\/$/ { n += $3 } END { print n + 0 }' $dir/found)
[ "$count" -le $most ] || fail "atomics: $count accesses outside the links, $most are allowed"

# One more is found, and one in a comment is none.
probe=src/work/tune.h
mkdir -p $dir/more/work
{
    cat $probe
    printf '/* DLPI_ADD_SEQ(&not, 1) */\nstatic uint32_t probe(uint32_t *at) {\n'
    printf '    return DLPI_LOAD_ACQ( &at[f(1, 2)] ); /* DLPI_LOAD_SEQ(at) */\n}\n'
} >$dir/more/work/tune.h
found_in $dir/more $dir/more/work/tune.h >$dir/found.more
grep '^work/tune.h' $dir/found | LC_ALL=C comm -13 - $dir/found.more >$dir/difference
[ "$(cat $dir/difference)" = 'work/tune.h LOAD_ACQ(&at[f(1,2)]) 1' ] ||
    fail "atomics: $probe with an access more: $(cat $dir/difference)"

echo "atomics: $count of dlpipe.h outside the links, $(sed -n 's/^shm\/ all //p' $dir/found) in" \
    "shm/, $(sed -n 's/^s3\/ all //p' $dir/found) in s3/"
[ $wrong -eq 0 ]
