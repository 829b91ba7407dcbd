# Join a product out of its manifest: awk -f src/join.awk src/dlpipe.h.in >dlpipe.h
# Each line of the manifest that begins with #include " and names a file below src/ is replaced by
# that file, less its #pragma once and its own lines of that kind: these let it compile alone, and
# what they name stands earlier in the manifest. All else is copied as it is.
# The line /* tests: ... */ says which tests hold the file (tests/tools/heads.sh); it is not copied.
# A file whose first line is /* needs: KIND... */, and a line that ends so (before a \, in a macro),
# wants these kinds of stages; the tag is not copied.
#   -v without=KINDS  leave out what wants one of these kinds (make without KIND="split pack")
#   -v origin=1       instead of each line, the file and line that it comes from
function is_source(line) { return line ~ /^#include "[a-z0-9_]+\/[a-z0-9_]+\.h"/ }
function is_tests(line) { return line ~ /^\/\* tests: [a-z0-9_\/, ]+ \*\/$/ }
function is_out(tag,    i) {
    for (i = split(without, kinds, " "); i > 0; i--) if (index(tag, " " kinds[i] " ")) return 1
    return 0
}
function put(path, n, line,    kind, rest) {
    if (match(line, / *\/\* needs: [a-z ]+ \*\/( \\)?$/)) {
        kind = substr(line, RSTART)
        rest = kind ~ /\\$/ ? " \\" : ""
        line = substr(line, 1, RSTART - 1) rest
        if (is_out(kind)) return
    }
    print origin ? path ":" n : line
}
function join_source(path,    line, got, n) {
    while ((got = (getline line < path)) > 0) {
        if (++n == 1 && line ~ /^\/\* needs: [a-z ]+ \*\/$/) {
            if (is_out(line)) break
        } else if (line != "#pragma once" && !is_source(line) && !is_tests(line))
            put(path, n, line)
    }
    if (got < 0) {
        print path ": cannot be read" | "cat 1>&2"
        exit 1
    }
    close(path)
}
is_source($0) {
    split($0, part, "\"")
    root = FILENAME
    sub(/[^\/]*$/, "", root)
    join_source(root part[2])
    next
}
{ put(FILENAME, FNR, $0) }
