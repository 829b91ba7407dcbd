# Join a product out of its manifest: awk -f src/join.awk src/dlpipe.h.in >dlpipe.h
# Each line of the manifest that begins with #include " and names a file below src/ is replaced by
# that file, less its #pragma once and its own lines of that kind: these let it compile alone, and
# what they name stands earlier in the manifest. All else is copied as it is.
# The line /* tests: ... */ says which tests hold the file (tests/tools/heads.sh); it is not copied.
# A file whose first line is /* needs: PART... */, and a line that ends so,
# belong to parts of the table src/parts, which a program can leave out. Around such files and lines
# the product has #ifndef DLPIPE_NO_PART. PART|PART stays with either of the two.
# Files of api/ are never cut, so that all files of a program agree: there, a call of a part is
# declared with DLPI_LESS_PART, and its use is an error.
# The line /* parts */ of a manifest becomes the macros of all parts.
# A line #include "stages/KIND.h" /* of api/kinds.h */ stands for several lines: one for each row
# KIND(NAME, ...) of that list that has a file. The file has the name in small letters. A file that
# the manifest names itself is left out there.
# A line of the manifest that ends in /* cold */ names a file whose functions run seldom: when a
# pipe is opened, closed or observed, or fails. A line DLPI_COLD is put before each of them, but not
# before an inline function.
# @FACE@ in a manifest is a number of 32 bits: a hash of the structs, unions, enums and numbers of
# api/ above it, without comments. Two headers with the same one lay out all that a program gives
# and gets alike.
#   -v origin=1       instead of each line, the file and line that it comes from
#   -v files=1        the manifest alone, with a line #include "..." for each file
function is_source(line) { return line ~ /^#include "[a-z0-9_]+\/[a-z0-9_]+\.h"/ }
function is_tests(line) { return line ~ /^\/\* tests: [a-z0-9_\/, ]+ \*\/$/ }
function parts_read(    line, word, more, n, k, i, j) {
    while ((getline line < (root "parts")) > 0) {
        if (line ~ /^#/) continue
        n = split(substr(line, 1, index(line, "|") - 1), word, " ")
        listed[++parts] = word[1]
        for (i = 2; i <= n; i++) {
            if (!(word[i] in needs)) print "src/parts: " word[1] " needs " word[i] | "cat 1>&2"
            k = split(needs[word[i]] " " word[i], more, " ")
            for (j = 1; j <= k; j++)
                if (!index(needs[word[1]] " ", " " more[j] " "))
                    needs[word[1]] = needs[word[1]] " " more[j]
        }
        needs[word[1]] = needs[word[1]] ""
    }
    close(root "parts")
}
function macro(how, name) { return "DLPIPE_" how "_" toupper(name) }
# Return the words "defined(DLPIPE_HOW_A) JOIN defined(DLPIPE_HOW_B)" for these parts.
function defined(how, names, join, sign,    i, n, name, text) {
    n = split(names, name, " ")
    for (i = 1; i <= n; i++)
        text = text (i > 1 ? join : "") sign "defined(" macro(how, name[i]) ")"
    return text
}
# Print a line, in several lines of the preprocessor if it is long.
function say(line,    i) {
    while (length(line) > 98) {
        for (i = 98; substr(line, i, 1) != " "; i--) continue
        print origin ? FILENAME ":" FNR : substr(line, 1, i) "\\"
        line = "    " substr(line, i + 1)
    }
    print origin ? FILENAME ":" FNR : line
}
# Print the macros of all parts. A part is left out by its macro, or with a part that it needs, or
# by DLPIPE_ONLY_LOADER if no macro keeps it or a part that needs it.
function parts_say(    i, k, p, by, all) {
    for (i = 1; i <= parts; i++) all = all " " listed[i]
    say("#if !defined(DLPIPE_ONLY_LOADER) && (" defined("WITH", all, " || ", "") ")")
    say("#error DLPIPE_WITH_* keeps a part beside DLPIPE_ONLY_LOADER: define that, too")
    say("#endif")
    for (i = 1; i <= parts; i++) {
        p = listed[i]
        by = p
        for (k = 1; k <= parts; k++)
            if (index(needs[listed[k]] " ", " " p " ")) by = by " " listed[k]
        say("#if " defined("WITH", p, "", "") " && (" defined("NO", p needs[p], " || ", "") ")")
        say("#error " macro("WITH", p) " contradicts a DLPIPE_NO_*: it wants " toupper(p needs[p]))
        say("#endif")
        say("#if !" defined("NO", p, "", "") " && " \
            (needs[p] == "" ? "" : "(" defined("NO", needs[p], " || ", "") " || ") \
            (needs[p] == "" ? "" : "(") "defined(DLPIPE_ONLY_LOADER) && " \
            defined("WITH", by, " && ", "!") (needs[p] == "" ? "" : "))"))
        say("#define " macro("NO", p))
        say("#endif")
        say("#ifdef " macro("NO", p))
        say("#define DLPI_LESS_" toupper(p) " DLPI_LESS(\"" macro("NO", p) "\", \"" \
            macro("WITH", p) "\")")
        say("#else")
        say("#define DLPI_LESS_" toupper(p))
        say("#endif")
    }
    say("#if " defined("NO", all, " || ", ""))
    say("#define DLPI_LESS_ANY")
    say("#endif")
}
# Begin a block of these parts; end it.
function block(names,    any) {
    any = gsub(/\|/, " ", names)
    say(names ~ / / ? "#if " defined("NO", names, any ? " || " : " && ", "!") : \
        "#ifndef " macro("NO", names))
}
function unblock(names) {
    sub(/[ |].*/, "", names)
    say("#endif /* " macro("NO", names) " */")
}
# Let the lines that follow belong to these parts; "": to none beside those of their file.
function turn(names) {
    if (names == now) return
    if (now != "") unblock(now)
    if (names != "") block(names)
    now = names
}
function tagged(tag) {
    sub(/^.*needs: /, "", tag)
    sub(/ \*\/.*$/, "", tag)
    return tag
}
function is_function(line) {
    return line ~ /^(static|DLPDEF|DLPI_(NOINLINE|UNREAD|PRINTF\([^)]*\)) static)[^=;]*\(/ && \
        line !~ /^static inline/
}
# Take a line of api/ into the face, if it stands in a struct, union or enum, or if it defines a
# number: by #define, or in a list such as KIND(NAME, 7).
function face_take(line,    i) {
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
    if (noted && !sub(/^.*\*\//, "", line)) return
    noted = sub(/\/\*.*$/, "", line)
    if (line ~ /^(typedef )?(struct|union|enum)[^;]*\{/) inside = 1
    if (!inside && line !~ /^#define DLP_|^    [A-Z]+\([A-Z0-9_]+,/) return
    if (inside && line ~ /}[^;]*;/ && line ~ /^(}|typedef|enum)/) inside = 0
    gsub(/[ \t]+/, "", line)
    for (i = 1; i <= length(line); i++)
        face = (face * 61 + index(letters, substr(line, i, 1)) + 1) % 4294967291
}
function put(path, n, line, cold,    names, name, k, i) {
    if (match(line, / *\/\* needs: [a-z| ]+ \*\/$/)) {
        names = tagged(substr(line, RSTART))
        line = substr(line, 1, RSTART - 1)
    }
    if (path ~ /(^|\/)api\//) {
        face_take(line)
        if (names == "") names = whole
        if (names != "" && line ~ /^DLPDEF /) {
            k = split(names, name, " ")
            for (i = 1; i <= k; i++) { # clang wants the attribute once: of the first that is cut
                if (i < k) say((i > 1 ? "#elif defined(" : "#if defined(") macro("NO", name[i]) ")")
                else if (k > 1) say("#else")
                say("DLPDEF DLPI_LESS_" toupper(name[i]))
            }
            if (k > 1) say("#endif /* " macro("NO", name[1]) " */")
            moved = 1
        }
        if (moved) { # without DLPDEF the declaration stands seven columns further left
            if (line !~ /;/) sub(/^(DLPDEF |       )/, "", line)
            else moved = sub(/^(DLPDEF |       )/, "", line) * 0
        }
    } else turn(names)
    if (cold && is_function(line)) print origin ? path ":" n : "DLPI_COLD"
    print origin ? path ":" n : line
}
function join_source(path, cold,    line, got, n) {
    if (files) {
        print "#include \"" substr(path, length(root) + 1) "\""
        return
    }
    whole = ""
    while ((got = (getline line < path)) > 0) {
        if (++n == 1 && line ~ /^\/\* needs: [a-z| ]+ \*\/$/) {
            whole = tagged(line)
            if (path !~ /(^|\/)api\//) block(whole)
        } else if (line != "#pragma once" && !is_source(line) && !is_tests(line))
            put(path, n, line, cold)
    }
    turn("")
    if (whole != "" && path !~ /(^|\/)api\//) unblock(whole)
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
        if (index(named, "\"" name "\"") || (getline tag < (root name)) <= 0) continue
        close(root name)
        if (n++) put(FILENAME, FNR, "")
        join_source(root name)
    }
    close(root list)
}
FNR == 1 {
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_*()[]{};,=<>+-"
    root = FILENAME
    sub(/[^\/]*$/, "", root)
    parts_read()
}
/^\/\* parts \*\/$/ {
    if (!files) parts_say()
    next
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
{
    gsub(/@FACE@/, sprintf("%04x%04x", int(face / 65536), face % 65536))
    if (!files) put(FILENAME, FNR, $0)
}
