# Join a product out of its manifest: awk -f src/join.awk src/dlpipe.h.in >dlpipe.h
# Each line of the manifest that begins with #include " and names a file below src/ is replaced by
# that file, less its #pragma once and its own lines of that kind: these let it compile alone, and
# what they name stands earlier in the manifest. All else is copied as it is.
# The line /* tests: ... */ says which tests hold the file (tests/tools/heads.sh); it is not copied.
# A file whose first line is /* needs: KIND... */, and a line that ends so (before a \, in a macro),
# wants these kinds of stages; the tag is not copied.
# A line #include "stages/KIND.h" /* of api/kinds.h */ stands for several lines: one for each row
# KIND(NAME, ...) of that list that has a tag. The file has the name in small letters. A file that
# the manifest names itself is left out there.
# A line of the manifest that ends in /* cold */ names a file whose functions run seldom: when a
# pipe is opened, closed or observed, or fails. A line DLPI_COLD is put before each of them, but not
# before an inline function.
#   -v without=KINDS  leave out what wants one of these kinds (make without KIND="split pack")
#   -v origin=1       instead of each line, the file and line that it comes from
#   -v files=1        the manifest alone, with a line #include "..." for each file
function is_source(line) { return line ~ /^#include "[a-z0-9_]+\/[a-z0-9_]+\.h"/ }
function is_tests(line) { return line ~ /^\/\* tests: [a-z0-9_\/, ]+ \*\/$/ }
function is_out(tag,    i) {
    for (i = split(without, kinds, " "); i > 0; i--) if (index(tag, " " kinds[i] " ")) return 1
    return 0
}
function is_function(line) {
    return line ~ /^(static|DLPDEF|__attribute__)[^=;]*\(/ && line !~ /^static inline/
}
function put(path, n, line, cold,    kind, rest) {
    if (match(line, / *\/\* needs: [a-z ]+ \*\/( \\)?$/)) {
        kind = substr(line, RSTART)
        rest = kind ~ /\\$/ ? " \\" : ""
        line = substr(line, 1, RSTART - 1) rest
        if (is_out(kind)) return
    }
    if (cold && is_function(line)) put(path, n, "DLPI_COLD")
    if (!files) print origin ? path ":" n : line
}
function join_source(path, cold,    line, got, n) {
    if (files) {
        print "#include \"" substr(path, length(root) + 1) "\""
        return
    }
    while ((got = (getline line < path)) > 0) {
        if (++n == 1 && line ~ /^\/\* needs: [a-z ]+ \*\/$/) {
            if (is_out(line)) break
        } else if (line != "#pragma once" && !is_source(line) && !is_tests(line))
            put(path, n, line, cold)
    }
    if (got < 0) {
        print path ": cannot be read" | "cat 1>&2"
        exit 1
    }
    close(path)
}
function join_listed(folder, row, list,    line, name, tag, n, named) {
    while ((getline line < FILENAME) > 0) if (is_source(line)) named = named line
    close(FILENAME)
    while ((getline line < (root list)) > 0) {
        if (!match(line, " " row "\\([A-Z0-9_]+,")) continue
        name = folder "/" tolower(substr(line, RSTART + length(row) + 2,
                                         RLENGTH - length(row) - 3)) ".h"
        if (!match(line, /\/\* needs: [a-z ]+ \*\//)) continue
        tag = substr(line, RSTART, RLENGTH)
        if (is_out(tag) || index(named, "\"" name "\"")) continue
        if (n++) put(FILENAME, FNR, "")
        join_source(root name)
    }
    close(root list)
}
FNR == 1 {
    if ($0 ~ /^\/\* needs: [a-z ]+ \*\/$/ && is_out($0)) exit
    root = FILENAME
    sub(/[^\/]*$/, "", root)
}
is_source($0) {
    split($0, part, "\"")
    join_source(root part[2], $0 ~ / \/\* cold \*\/$/)
    next
}
/^#include "[a-z0-9_]+\/[A-Z]+\.h" \/\* of [a-z0-9_\/]+\.h \*\/$/ {
    split($0, part, /["\/ ]+/)
    sub(/\.h$/, "", part[3])
    join_listed(part[2], part[3], $5)
    next
}
{ put(FILENAME, FNR, $0) }
