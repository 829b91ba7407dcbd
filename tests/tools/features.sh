#!/bin/sh
# In which lines of src/ does a file ask about a feature that is not its own? Which lines of the
# core speak of a feature at all, and which names there are those of a feature? All are counted for
# each file, with the fields of a pipe, and held against features.known: no count may be above that
# there. Where one is below, the file is to be written again by "features.sh known".
#
#   tests/tools/features.sh           the table, and the comparison
#   tests/tools/features.sh list      each such line, and each such name
#   tests/tools/features.sh known     what features.known is to hold
#
# What asks: comments, strings and preprocessor lines aside, code is cut at each ; { and }. Of such
# a piece the condition is
#   - what stands in the parentheses of if, while or switch, and
#   - of the rest, and of a piece without those: what is right of its first assignment and, where it
#     has a ?, left of the last ?; if it has a ? or one of && || == != < > ! at all.
# A line asks about a feature if its share of a condition has a word of it (BEGIN below): a member
# of a struct, a function, a constant. It counts once for each feature. A file does not ask about
# its own (the last argument there). src/doc, and src/s3, a product of its own, are not looked at.
#
# The core is the rooms pipe, wait, fail, cells, slot, row, work and deliver, with flight, observe
# and build. A line of it asks about a role if a condition of it, as above, looks at whether a pipe
# has a lender, keeper, holder or sink, or what its source leaves out: a call through their tables
# does not count, nor does pipe/roles.h. The plain thing in a default table makes such a condition
# needless.
#
# A line of the core speaks of a feature if it has a word of one at all, in a condition, a call or a
# flag, or if it names the keeper, holder, sink or lender of a pipe, or those that share it.
#
# A field is a member of struct dlp_pipe, as src/pipe/pipe.h declares it; those of a struct that is
# embedded are not counted.
#
# What is a name: an identifier in the core that has part, shard, split, slice, chunk,
# transfer, xfer, device, cache, stream, preload, scratch or push in it, in any case; but for
# cache_line and partial. Each use counts.
dir=build/features
. tests/rig/shell_rig
fresh_dir

# Lines "asks FILE FEATURE LINE TEXT", "roles FILE LINE TEXT", "speaks FILE LINE TEXT" and "names
# FILE IDENTIFIER". Where $1/ is part of a file's name, what is behind it is the file.
found_in() { # SRC FILE...
    src=$1
    shift
    awk -v src="$src/" "$code_awk"'
    function feature(name, members, functions, others, own) {
        word[name] = "(->|[.])(" members ")([^a-zA-Z0-9_]|$)"
        if (functions != "") word[name] = word[name] "|(^|[^a-zA-Z0-9_])(" functions ")[(]"
        if (others != "")
            word[name] = word[name] "|(^|[^a-zA-Z0-9_>.])(" others ")([^a-zA-Z0-9_]|$)"
        owner[name] = "^(" own ")$"
    }
    BEGIN {
        feature("parts", "parts?|part_[a-z_]+|n_parts|max_part_bytes|need_epoch",
            "dlpi_parts?_[a-z_]+", "DLP_STAGE_PARTS?",
            "(stages|open)/(parts|found|expand|pack)[.]h|inputs/.*|source/part_files[.]h|order/.*")
        feature("monitor", "view", "", "", "shm/monitor[.]h")
        feature("subscribers", "serve_only|max_subscribers",
            "dlpi_share_[a-z_]+", "p->share|p->shm|d[.]shm|dlpi_shm",
            "(shm|share)/.*|stages/out[.]h")
        feature("placement", "num_workers|threaded|placement|process|joined|clock_off|inline_ns|" \
            "call_clock_every|in_worker|untimed",
            "dlpi_inline_[a-z_]+|dlpi_in_processes|dlpi_pace_[a-z_]+",
            "DLP_PLACE_[A-Z]+|p->n_procs|p->n_threads",
            "work/workers[.]h|deliver/(scheduler|pace)[.]h|build/(placement|helps)[.]h|" \
            "shm/(supervisor|start)[.]h")
        feature("split", "split|cut|view_rows|chunk_rows|shuffle_rows", "dlpi_(cut|split)_[a-z_]+",
            "DLP_STAGE_SPLIT", "(stages|open)/(cut|split)[.]h|open/chunk_load[.]h|order/.*")
        feature("transfer",
            "transfer|device_buffers|device",
            "dlpi_transfer_[a-z_]+|dlpi_dev_slot", "DLP_STAGE_TRANSFER",
            "stages/transfer[.]h|device/.*")
        feature("tuning", "tune|tuned|tuner|tunes|workers_max|workers_min|active",
            "dlpi_tune_[a-z_]+|dlpi_active|dlpi_retired", "", "work/tune[.]h")
        feature("in_flight", "fetcher|in_flight|batch_pool",
            "dlpi_(in_flight|attempt|fetch_threads?)_[a-z_]+",
            "DLP_FETCH_[A-Z]+",
            "flight/[a-z_]+[.]h|inputs/(dataset|reads)[.]h|(stages|open)/(fetch|join)[.]h|" \
            "source/files[.]h")
        feature("cache", "cache|cache_[a-z_]+",
            "dlpi_cache_[a-z_]+", "DLP_STAGE_CACHE", "stages/cache[.]h")
        feature("stream", "stream|stream_[a-z_]+|open_end", "dlpi_open_end_[a-z_]+", "",
            "stages/sampler[.]h|(slot|inputs)/open_end[.]h|order/parts[.]h|device/.*")
        feature("chunks", "chunks?|preload|resident|cpu_buffers",
            "dlpi_chunks?_[a-z_]+", "DLP_PRELOAD_[A-Z]+",
            "(stages|open|order)/chunks[.]h|(stages|open)/(cut|split)[.]h|" \
            "open/chunk_load[.]h|report/words[.]h")
        feature("dispatch", "dispatch|rescan|rescan_seen",
            "dlpi_batch_mine", "DLP_DISPATCH_[A-Z]+",
            "wait/waiters[.]h|slot/claim[.]h")
        feature("unordered", "unordered|gaps_used", "dlpi_gaps_[a-z_]+", "",
            "deliver/deliver[.]h|slot/gaps[.]h")
        feature("collate", "has_item_cells|collate|cell_end|item_area|cells_from",
            "dlpi_collate_[a-z_]+|dlpi_batch_in_place|dlpi_cells_own",
            "DLPI_CELLS_(OWN|TURN)", "work/collate[.]h|cells/cells[.]h|stages/batch[.]h")
        feature("lists", "lists", "dlpi_lists?_[a-z_]+",
            "DLP_ORDER_BATCHES", "stages/lists[.]h|order/.*")
        feature("tensors", "exported",
            "dlpi_exported_[a-z_]+", "", "device/dlpack[.]h")
        feature("scratch", "scratch_[a-z_]+", "dlpi_scratch_[a-z_]+", "DLP_STAGE_SCRATCH",
            "(stages|open)/scratch[.]h")
        feature("expand", "expand", "dlpi_expand_[a-z_]+", "DLP_STAGE_(EXPAND|FOUND)",
            "(stages|open)/(found|expand|pack)[.]h|inputs/.*|report/packing[.]h")
        feature("pack", "pack", "dlpi_(pack|fit)_[a-z_]+", "DLP_PACK_[A-Z]+|DLP_STAGE_PACK",
            "(stages|open|inputs)/pack[a-z_]*[.]h|report/packing[.]h")
        feature("push", "push", "dlpi_push_[a-z_]+", "DLP_PUSH_[A-Z]+",
            "source/push(er|_[a-z]+)?[.]h")
        feature("guard", "guard", "", "DLP_STAGE_GUARD", "(stages|open)/guard[.]h")
        feature("trace", "trace_events|trace_bytes|trace", "dlpi_trace_[a-z_]+", "", "report/.*")
        core = "^(pipe|wait|fail|cells|slot|row|work|deliver|flight|observe|build)/"
        names = "part|shard|split|slice|chunk|transfer|xfer|device|cache|stream|preload|" \
            "scratch|push"
    }

    # Does a share of a condition look at whether a role is there?
    function asks_role(s) {
        gsub(/->(keeper|sink|holder|source)->[a-z_]+[(]/, "(", s)
        if (file == "pipe/roles.h") return 0
        return s ~ /(->|[.])(lends|lender_stage|ops->lender)([^a-zA-Z0-9_(]|$)/ ||
            s ~ /(->|[.])(keeper|sink|holder|source)([^a-zA-Z0-9_(]|$)/
    }

    # Has a line of the core a word of a feature that is not its own, or a role?
    function speaks(s,    f) {
        if (file == "pipe/roles.h") return 0
        if (s ~ /(->|[.])(lender|keeper|sink|holder)(_stage)?([^a-zA-Z0-9_]|$)/) return 1
        if (s ~ /(->|[.])(sharing|kept_by|stay)([^a-zA-Z0-9_]|$)/) return 1
        for (f in word) if (s ~ word[f] && file !~ owner[f]) return 1
        return 0
    }

    # A condition that begins in line at: which of its lines ask?
    function asked(text, at,    line, n, i, f) {
        n = split(text, line, "\n")
        for (i = 1; i <= n; i++)
            if (file ~ core && file != "pipe/roles.h" && asks_role(line[i]) &&
                !(at + i - 1 in role_seen)) {
                role_seen[at + i - 1] = 1
                print "roles", file, at + i - 1, shown[at + i - 1]
            }
        for (i = 1; i <= n; i++)
            for (f in word)
                if (line[i] ~ word[f] && file !~ owner[f] && !((f, at + i - 1) in seen)) {
                    seen[f, at + i - 1] = 1
                    print "asks", file, f, at + i - 1, shown[at + i - 1]
                }
    }
    function lines_in(s) { return gsub(/\n/, "", s) }

    # Where the parenthesis that s begins with is closed.
    function closes(s,    at, depth) {
        at = 0
        while (match(substr(s, at + 1), /[()]/)) {
            at += RSTART
            depth += substr(s, at, 1) == "(" ? 1 : -1
            if (depth == 0) return at
        }
        return length(s)
    }

    function piece_ends(s, at,    n, cut) {
        while (match(s, /(^|[^a-zA-Z0-9_])(if|while|switch) *[(]/)) {
            n = RSTART + RLENGTH - 1
            at += lines_in(substr(s, 1, n - 1))
            s = substr(s, n)
            n = closes(s)
            asked(substr(s, 1, n), at)
            at += lines_in(substr(s, 1, n))
            s = substr(s, n + 1)
        }
        if (match(s, /[^=!<>]=[^=]/)) {
            n = RSTART + 1
            at += lines_in(substr(s, 1, n))
            s = substr(s, n + 1)
        }
        if (s ~ /[?]/) {
            cut = match(s, /[?][^?]*$/)
            asked(substr(s, 1, cut - 1), at)
        } else if (s ~ /&&|[|][|]|[=!]=|![a-z(]|[^-<>]>([^>]|$)|[^<]<([^<]|$)/) {
            asked(s, at)
        }
    }

    FNR == 1 {
        file = FILENAME
        if (index(file, src) == 1) file = substr(file, length(src) + 1)
        in_comment = directive = 0; piece = ""; begun = 1
        split("", seen); split("", role_seen); split("", shown)
    }
    { code = bare($0) }
    directive || code ~ /^ *#/ {
        directive = code ~ /\\$/
        if (piece != "") piece = piece "\n"
        next
    }
    {
        shown[FNR] = $0
        sub(/^ +/, "", shown[FNR])
        if (file ~ core && file != "pipe/roles.h") {
            if (speaks(code)) print "speaks", file, FNR, shown[FNR]
            rest = code
            while (match(rest, /[a-zA-Z_][a-zA-Z0-9_]*/)) {
                id = substr(rest, RSTART, RLENGTH)
                rest = substr(rest, RSTART + RLENGTH)
                low = tolower(id)
                gsub(/cache_line|partial/, "", low)
                if (low ~ names) print "names", file, id
            }
        }
        if (piece == "") begun = FNR
        while (match(code, /[;{}]/)) {
            end = RSTART
            piece_ends(piece substr(code, 1, end - 1), begun)
            code = substr(code, end + 1)
            piece = ""; begun = FNR
        }
        piece = piece code "\n"
        if (piece ~ /^[ \n]*$/) piece = ""
    }' "$@"
}

fields() { # how many fields has struct dlp_pipe in this file?
    sed -n '/^struct dlp_pipe {$/,/^};$/p' "$1" | awk '
        { line = line " " $0 }
        END {
            gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
            sub(/^[^{]*[{]/, "", line); sub(/[}];.*/, "", line)
            n = split(line, member, ";")
            for (i = 1; i < n; i++) {
                if (member[i] ~ /[(]/) { all++; continue } # a pointer to a function
                if (member[i] ~ /pad[0-9]*\[/) continue
                all += gsub(/,/, "", member[i]) + 1
            }
            print all
        }'
}

sum() { # lines "FILE asks N", and so for roles, speaks and names
    awk '{ n[$2 " " $1]++ } END { for (k in n) print k, n[k] }' | LC_ALL=C sort
}

files=$(ls src/*/*.h | grep -v '^src/\(doc\|s3\)/' | LC_ALL=C sort)
# shellcheck disable=SC2086
found_in src $files >$dir/found
sum <$dir/found >$dir/counts
echo "pipe/pipe.h fields $(fields src/pipe/pipe.h)" >>$dir/counts

case ${1:-} in
list)
    grep '^asks' $dir/found | sed 's/^asks \([^ ]*\) \([^ ]*\) \([^ ]*\) /src\/\1:\3: \2: /'
    sed -n 's/^roles \([^ ]*\) \([^ ]*\) /src\/\1:\2: role: /p
        s/^speaks \([^ ]*\) \([^ ]*\) /src\/\1:\2: speaks: /p' $dir/found
    grep '^names' $dir/found | LC_ALL=C sort | uniq -c | awk '{ print "src/" $3 ": " $4, $1 }'
    exit
    ;;
known)
    echo '# What features.sh counts for each file: lines that ask about features of others, or'
    echo '# whether a role is there, lines and names of the core that speak of a feature, and the'
    echo '# fields of struct dlp_pipe. These may only shrink.'
    cat $dir/counts
    exit
    ;;
esac

awk '
$1 == "asks" { if (!($2 in all)) file[++files] = $2; n[$2, $3]++; all[$2]++; of[$3]++; total++ }
$1 == "roles" { roles++ }
$1 == "speaks" { spoken++ }
$1 == "names" { uses++; named[$2]++; if (!(($2, $3) in id)) { id[$2, $3] = 1; ids[$2]++ } }
END {
    print "lines that ask about a feature of another file:"
    while (1) { # features, the most asked about first
        best = ""
        for (f in of) if (!(f in done) && (best == "" || of[f] > of[best] ||
                                           (of[f] == of[best] && f < best))) best = f
        if (best == "") break
        done[best] = 1
        order[++features] = best
    }
    printf "%-22s %5s", "", "all"
    for (k = 1; k <= features; k++) printf " %*s", width(k), order[k]
    printf "\n%-22s %5d", "all", total
    for (k = 1; k <= features; k++) printf " %*d", width(k), of[order[k]]
    print ""
    for (i = 1; i <= files; i++) {
        printf "%-22s %5d", file[i], all[file[i]]
        for (k = 1; k <= features; k++)
            printf " %*s", width(k), (file[i], order[k]) in n ? n[file[i], order[k]] : "."
        print ""
    }
    print "\nnames of features in the core (uses, different ones):"
    for (f in named) printf "%-22s %5d %5d\n", f, named[f], ids[f] | "LC_ALL=C sort"
    close("LC_ALL=C sort")
    printf "%-22s %5d\n", "all", uses
    printf "\nlines in the core that speak of a feature or a role: %d\n", spoken
    printf "lines in the core that ask whether a role is there: %d\n", roles
}
function width(k) { return length(order[k]) > 4 ? length(order[k]) : 4 }' $dir/found

echo "fields of struct dlp_pipe: $(fields src/pipe/pipe.h)"

# One such line more, a name, and a field more, are found.
probe=src/slot/feed.h
mkdir -p $dir/more/slot $dir/more/pipe
{
    cat $probe
    printf 'static void probe(const dlp_pipe *p) {\n    if (p->d.seed != 0 &&\n'
    printf '        p->split) return;\n    if (p->sink) return;\n}\n'
} >$dir/more/slot/feed.h
found_in $dir/more $dir/more/slot/feed.h | sum >$dir/counts.more
for what in asks roles names speaks; do
    more=1
    [ $what != speaks ] || more=2
    [ $(($(awk -v w=$what '$1 == "slot/feed.h" && $2 == w { print $3 }' $dir/counts) + more)) -eq \
        "$(awk -v w=$what '$2 == w { print $3 }' $dir/counts.more)" ] ||
        fail "features: $probe with a line more that asks is not counted so: $what"
done
awk '{ print } /^struct dlp_pipe {$/ { print "    int more, *others;" }' src/pipe/pipe.h \
    >$dir/more/pipe/pipe.h
[ "$(fields $dir/more/pipe/pipe.h)" -eq $(($(fields src/pipe/pipe.h) + 2)) ] ||
    fail "features: src/pipe/pipe.h with fields more is not counted so"

counts_held features
[ $wrong -eq 0 ]
