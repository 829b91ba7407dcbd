#!/bin/sh
# House rules that no compiler checks, then cppcheck and clang-tidy where they are installed.
#
#   tests/tools/lint.sh               the whole tree
#   tests/tools/lint.sh rules FILE..  the rules alone (lint_selftest.sh shows each one fail)
#   tests/tools/lint.sh known         write the .known files of the checks that count
#
# The rules, by the name that a finding carries:
#   atomics   raw __atomic, __sync, _Atomic, fences, volatile or assembler outside >>atomics,
#             dlpi_pause ("volatile sig_atomic_t": allowed outside the headers)
#   label     an ordered DLPI_* atomic names its label in a comment on its line or the one before
#   partner   a label that is named only once has no partner
#   pointer   a struct marked "in region" holds a pointer
#   macro     one of a header returns from the function that uses it
#   anchor    a section without a line in the contents, a line without its section, or another order
#   word      one that has a plainer one: see words= below
#   columns   more than 100 of them
#   format    what clang-format would lay out otherwise (src/, tests/, examples/)
#   tab, trailing, left-over (a note that something is yet to be done), outside (a path elsewhere)
set -u

# C rules: for headers and C files. Comments and strings are taken out before code is looked at.
c_rules() {
    awk '
    function say(rule, text) { printf "%s:%d: %s: %s\n", FILENAME, FNR, rule, text; bad = 1 }

    # Split the line into code (strings emptied) and remark (what its comments say).
    function split_line(s,    c, two, i) {
        code = ""; remark = ""
        for (i = 1; i <= length(s); i++) {
            c = substr(s, i, 1); two = substr(s, i, 2)
            if (in_comment) {
                if (two == "*/") { in_comment = 0; i++ } else remark = remark c
            } else if (quote != "") {
                if (c == "\\") i++
                else if (c == quote) { quote = ""; code = code c }
            } else if (two == "/*") { in_comment = 1; i++ }
            else if (two == "//") { remark = remark substr(s, i + 2); break }
            else { if (c == "\"" || c == "\047") quote = c; code = code c }
        }
        quote = ""
    }

    FNR == 1 { in_comment = shim = in_pause = region = marked = macro = 0; quote = before = "" }
    { split_line($0) }

    />>[a-z]/ && remark ~ />>/ { shim = (remark ~ />>atomics/) }
    code ~ /dlpi_pause\(void\) *\{/ { in_pause = 1 }
    in_pause && /^}/ { in_pause = 0 }

    !shim {
        c = code
        if (in_pause) gsub(/__asm__|__volatile__/, "", c)
        if (FILENAME !~ /\.h$/) gsub(/volatile sig_atomic_t/, "", c)
        if (header || FILENAME !~ /tests\//)
            if (c ~ /__atomic|__sync|_Atomic|volatile|_fence|stdatomic|asm/)
                say("atomics", "goes past the DLPI_* shim")
    }

    # Labels: one or more capitals and a number, such as R1.
    header && !shim && code !~ /^ *#/ &&
    code ~ /DLPI_([A-Z0-9]+_(ACQ|REL|ACQREL|SEQ)|KEEP_ORDER)[ (]/ {
        said = before " " remark
        if (said !~ /(^|[^A-Za-z0-9_])[A-Z]+[0-9]+/)
            say("label", "an ordered atomic without a label")
        else
            used[FILENAME, FNR] = said
    }
    { # where each label is named, for "partner"
        said = remark
        while (match(said, /[A-Z]+[0-9]+/)) {
            pre = RSTART > 1 ? substr(said, RSTART - 1, 1) : " "
            name = substr(said, RSTART, RLENGTH)
            said = substr(said, RSTART + RLENGTH)
            if (pre !~ /[A-Za-z0-9_]/ && said !~ /^[A-Za-z_]/) times[name]++
        }
    }

    # Structs in the region.
    remark ~ /in region/ { marked = 2 }
    marked && code ~ /struct/ && code ~ /\{/ { region = 1; depth = 0; marked = 0 }
    marked && code ~ /[^ ]/ && code !~ /struct/ { marked-- }
    region {
        c = code
        if (c ~ /\*/) say("pointer", "a struct in the region may hold offsets only")
        depth += gsub(/\{/, "{", c) - gsub(/\}/, "}", c)
        if (depth <= 0) region = 0
    }
    { before = remark }

    # Function-like macros.
    header && code ~ /^ *# *define +[A-Za-z_0-9]+\(/ { macro = 1 }
    macro && code ~ /(^|[^A-Za-z0-9_])return([^A-Za-z0-9_]|$)/ {
        say("macro", "it returns from the function that uses it")
    }
    code !~ /\\$/ { macro = 0 }

    END {
        for (at in used) {
            said = used[at]; found = 0; last = ""
            while (match(said, /[A-Z]+[0-9]+/)) {
                last = substr(said, RSTART, RLENGTH)
                if (times[last] > 1) found = 1
                said = substr(said, RSTART + RLENGTH)
            }
            if (!found) {
                split(at, place, SUBSEP)
                printf "%s:%d: partner: %s is named nowhere else\n", place[1], place[2], last
                bad = 1
            }
        }
        exit bad
    }' header="$2" "$1"
}

# The contents table of a header: the comment lines behind ">>contents" that begin with an anchor.
anchor_rules() {
    awk '
    function say(line, text) { printf "%s:%d: anchor: %s\n", FILENAME, line, text; bad = 1 }
    match($0, /^(\/\*)? *>>[a-z][a-z0-9-]*/) {
        name = substr($0, RSTART, RLENGTH); sub(/.*>>/, "", name)
        if (name == "contents") { table = 1; seen = 1; next }
        if (table) { # of one anchor and its title, or of nothing but anchors
            for (i = 1; i <= NF; i++) {
                if ($i !~ /^>>[a-z]/) break
                name = substr($i, 3)
                if (name in listed) say(FNR, name " is twice in the contents")
                listed[name] = FNR; order[++n] = name
            }
            next
        }
        if (name in section) say(FNR, "a second section " name)
        section[name] = FNR; place[++m] = name
        next
    }
    /\*\// || (table && /^ *$/ && n) { table = 0 }
    END {
        if (!seen && m) say(1, "sections, but no >>contents")
        for (i = 1; i <= m; i++)
            if (!(place[i] in listed)) say(section[place[i]], place[i] " is not in the contents")
        for (i = 1; i <= n; i++)
            if (!(order[i] in section)) say(listed[order[i]], "there is no section " order[i])
        for (i = 1; i <= n && !bad; i++)
            if (order[i] != place[i])
                say(listed[order[i]], order[i] " is not in the order of the sections")
        exit bad
    }' "$1"
}

words='(^|[^a-z])(bells?|rung|flights?|crew|naps?|anew|fed_all|is to be had|looks? round)([^a-z]|$)'

# Rules for every text file.
text_rules() {
    awk '
    function say(rule, text) { printf "%s:%d: %s: %s\n", FILENAME, FNR, rule, text; bad = 1 }
    FILENAME !~ /\.(md|golden)$/ && length($0) > 100 { say("columns", length($0)) }
    /\t/ && FILENAME !~ /(^|\/)Makefile|\.mk$/ { say("tab", "use spaces") }
    /[ \t]$/ { say("trailing", "white space at the end") }
    /(^|[^A-Za-z_])(TO[D]O|FI[X]ME|X[X]X|HA[C]K)([^A-Za-z_]|$)/ { say("left-over", $0) }
    /(^|[^A-Za-z0-9_.$}*])\/(home|root|work|mnt|opt|srv|Users)\// { say("outside", $0) }
    /(^|[^A-Za-z0-9_-])shared\// { say("outside", $0) }
    FILENAME !~ /(^|\/)lint[^\/]*$/ { # words that have a plainer one, or a standard one
        s = tolower($0)
        gsub(/in[-_ ]flight|flight[\/,|`]/, "", s) # and the folder of that name
        sub(/^[ *#\/]*flight/, "", s) # "in" stands at the end of the line before
        if (match(s, WORDS)) say("word", substr(s, RSTART, RLENGTH))
    }
    END { exit bad }' WORDS="$words" "$1"
}

# A finding in a product names the file of src/ to edit, as well.
in_src() { # PRODUCT
    if [ ! -f "src/$1.in" ] || [ ! -s build/lint.rules ]; then
        cat
        return
    fi
    awk -v origin=1 -f src/join.awk "src/$1.in" >build/lint.origin
    awk -F: 'FNR == NR { at[NR] = $0; next } { print at[$2] " (" $0 ")" }' build/lint.origin -
}

rules() {
    bad=0
    mkdir -p build
    for f in "$@"; do
        text_rules "$f" || bad=1
        case $f in
        src/*) ;; # as it stands in the products
        *dlpipe*.h)
            { c_rules "$f" 1 && anchor_rules "$f"; } >build/lint.rules || bad=1
            in_src "$f" <build/lint.rules
            ;;
        *.c | *.h | *.cc) c_rules "$f" 0 || bad=1 ;;
        esac
    done
    return $bad
}

STRICT_C='-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef
 -Wcast-align -Wstrict-prototypes -Wmissing-prototypes -Wvla'

# Left out of bugprone-*: parameters that could be swapped (a matter of taste), identifiers with
# two underscores (feature-test macros), narrowing (the compilers' -Wconversion is stricter),
# assignments in conditions and macro parentheses (false alarms on initialisers and X-macros), casts
# of vector intrinsics' arguments. Padding: layouts here follow who writes what.
TIDY='-*,bugprone-*,clang-analyzer-*,misc-redundant-expression,misc-misplaced-const
 -bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-bugprone-narrowing-conversions
 -bugprone-assignment-in-if-condition,-bugprone-macro-parentheses
 -bugprone-misplaced-widening-cast
 -bugprone-implicit-widening-of-multiplication-result
 -clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
 -clang-analyzer-optin.performance.Padding'

# What a file that includes mpi.h wants of a compiler; 1 where that is not installed.
mpi_flags() {
    grep -q '^#include <mpi.h>' "$1" || return 0
    command -v mpicc >/dev/null 2>&1 || return 1
    mpicc --showme:compile 2>/dev/null || mpicc -compile_info | tr ' ' '\n' | grep '^-I'
}

# Does an example include a header of a library that is not installed?
lacks() {
    for h in jpeglib.h sqlite3.h sndfile.h curl/curl.h libavformat/avformat.h; do
        grep -q "^#include <$h>" "$1" || continue
        printf '#include <stdio.h>\n#include <%s>\n' $h | ${CC:-cc} -E -x c - >/dev/null 2>&1 &&
            continue
        echo "$1: there is no $h, left out"
        return 0
    done
    return 1
}

tidy() { # clang-tidy takes a header as the main file, what it includes of ours with it
    f=$1
    said=build/lint.$(basename "$f")
    ! lacks "$f" || return 0
    mpi=$(mpi_flags "$f") || { echo "$f: there is no mpicc, left out"; return 0; }
    ours=
    case $f in
    *.h)
        ours='dlpipe[_a-z0-9]*\.h'
        set -- -DDLPIPE_IMPLEMENTATION -DDLPIPE_CUDA -DDLPIPE_OPENCL \
            -Xclang -analyzer-opt-analyze-headers
        ! printf '#include <openssl/ssl.h>\n' | clang -E -x c - >/dev/null 2>&1 ||
            set -- "$@" -DDLPIPE_S3_OPENSSL
        ;;
    *) # without the implementation, which has been looked at
        set -- -DDLPIPE_IMPLEMENTATION_DONE -DDLPIPE_SHM_IMPLEMENTATION_DONE \
            -DDLPIPE_S3_IMPLEMENTATION_DONE \
            -D_GNU_SOURCE ;;
    esac
    # The analyzer goes on to 225,000 places of a function; most of what it finds is near its start.
    [ -z "${FEW:-}" ] || set -- "$@" -Xclang -analyzer-config -Xclang max-nodes=40000
    # shellcheck disable=SC2086
    clang-tidy --quiet --warnings-as-errors='*' --header-filter="$ours" \
        --checks="$(echo $TIDY | tr ' ' ',')" "$f" -- \
        -x c -std=c11 "$@" $mpi >"$said.out" 2>"$said.err"
    code=$?
    [ $code -eq 0 ] || { # the finding, not each step of the path to it
        grep -A 2 ': error: ' "$said.out" || cat "$said.err"
    }
    return $code
}

silent() { # a test or example compiles without a word
    mpi=$(mpi_flags "$2") || { echo "$2: there is no mpicc, left out"; return 0; }
    ! lacks "$2" || return 0
    case $1:$2 in
    clang:* | gcc:tests/[fmsu]*/*) set -- "$1" "$2" -fsyntax-only ;;
    *) set -- "$1" "$2" -O1 -c -o "build/lint.$(basename "$2").o" ;; # gcc warns late
    esac
    case $2 in
    examples/*) # without the implementation, which is compiled elsewhere
        set -- "$@" -DDLPIPE_IMPLEMENTATION_DONE -DDLPIPE_SHM_IMPLEMENTATION_DONE \
            -DDLPIPE_S3_IMPLEMENTATION_DONE \
            -D_GNU_SOURCE ;;
    esac
    cc=$1
    f=$2
    shift 2
    # shellcheck disable=SC2086
    $cc $STRICT_C -Werror $mpi "$@" "$f"
}

check() { # cppcheck
    cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,portability \
        --suppress=missingIncludeSystem --max-configs=1 \
        -D__linux__ -D__x86_64__ -D__GNUC__=12 -D__SIZEOF_POINTER__=8 "$@"
}

whole_tree() {
    find . -path ./build -prune -o -path ./.git -prune -o -type f -print | sed 's|^\./||' |
        grep -v '\.\(png\|svg\|gz\|bin\|jsonl\)$' | LC_ALL=C sort
}

# What has one format, by .clang-format.
formatted() {
    ls src/*/*.h tests/*/*.c tests/*/*.h tests/*/*.cc tests/*/*/*.c tests/*/*/*.cc \
        examples/*.c examples/*/*.[ch]* |
        grep -v '^src/doc/'
}

case ${1:-} in # parts of it, for many files at once; rules without files: for all
rules)
    shift
    # shellcheck disable=SC2046
    [ $# -gt 0 ] || set -- $(whole_tree)
    rules "$@"
    exit
    ;;
known) # the numbers of today, where some were raised for a reason: the difference shows them
    for check in features rooms labels rows words sizes systems; do
        sh tests/tools/$check.sh known >build/lint.known &&
            mv build/lint.known tests/tools/$check.known
    done
    exit
    ;;
tidy | silent | formatted)
    "$@"
    exit
    ;;
esac

mkdir -p build
bad=0
files=$(whole_tree)
# shellcheck disable=SC2086
rules $files || bad=1
echo "rules: $(echo "$files" | wc -l) files"
for check in long_functions heads rooms labels rows words sizes own systems; do
    sh tests/tools/$check.sh || bad=1
done

if command -v clang-format >/dev/null 2>&1; then
    # shellcheck disable=SC2046
    if clang-format --dry-run -Werror $(formatted) 2>build/lint.format; then
        version=$(clang-format --version | grep -o 'version [0-9.]*')
        echo "format: $(formatted | wc -l) files, clang-format $version"
    else
        grep error: build/lint.format | head -n 20
        echo 'format: "make format" mends it'
        bad=1
    fi
else
    echo 'clang-format: not installed, left out'
fi

# Tests and examples are as clean as the header. "make test" compiles each test with one compiler,
# a warning an error there with STRICT=1; here each is read by both. FEW=1: without tests and
# benchmarks, and without clang-tidy's look at examples, and with less of the analyzer, as in
# .ci/run.
for cc in gcc clang; do
    command -v $cc >/dev/null 2>&1 || { echo "$cc: not installed, left out"; continue; }
    sources='tests/unit/*/*.c tests/system/*/*.c tests/model/*.c tests/fuzz/*.c tests/bench/*.c
        tests/gpu/*.c examples/*.c'
    [ -z "${FEW:-}" ] || sources='examples/*.c'
    # shellcheck disable=SC2086
    if ls $sources | xargs -P 2 -n 1 sh tests/tools/lint.sh silent $cc; then
        echo "$cc: tests and examples compile in silence"
    else
        bad=1
    fi
done

if command -v cppcheck >/dev/null 2>&1; then
    for h in dlpipe_shm.h dlpipe_s3.h; do # the first includes dlpipe.h, which is looked at with it
        check --language=c -DDLPIPE_IMPLEMENTATION -DDLPIPE_CUDA -DDLPIPE_OPENCL "$h" || bad=1
    done
    # without the implementation, which has been looked at
    check -DDLPIPE_IMPLEMENTATION_DONE -DDLPIPE_SHM_IMPLEMENTATION_DONE \
        -DDLPIPE_S3_IMPLEMENTATION_DONE \
        examples/*.c || bad=1
    echo "cppcheck: $(cppcheck --version)"
else
    echo 'cppcheck: not installed, left out'
fi

if command -v clang-tidy >/dev/null 2>&1; then
    looked_at=examples/*.c
    [ -z "${FEW:-}" ] || looked_at=
    # shellcheck disable=SC2086
    ls dlpipe_shm.h dlpipe_s3.h $looked_at | xargs -P 2 -n 1 sh tests/tools/lint.sh tidy || bad=1
    echo "clang-tidy: $(clang-tidy --version | grep -o 'version [0-9.]*')"
else
    echo 'clang-tidy: not installed, left out'
fi

[ $bad -eq 0 ] && echo 'lint: clean'
exit $bad
