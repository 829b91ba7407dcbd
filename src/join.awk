# Join a product out of its manifest: awk -f src/join.awk src/dlpipe.h.in >dlpipe.h
# Each line of the manifest that begins with #include " and names a file below src/ is replaced by
# that file, less its #pragma once and its own lines of that kind: these let it compile alone, and
# what they name stands earlier in the manifest. All else is copied as it is.
#   -v origin=1: instead of each line, the file and line that it comes from
function is_source(line) { return line ~ /^#include "[a-z0-9_]+\/[a-z0-9_]+\.h"/ }
function put(path, n, line) { print origin ? path ":" n : line }
function join_source(path,    line, got, n) {
    while ((got = (getline line < path)) > 0) {
        n++
        if (line != "#pragma once" && !is_source(line)) put(path, n, line)
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
