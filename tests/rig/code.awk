# What the checks of tests/tools share, put before an awk program of theirs as "$code_awk".
# Set in_comment to 0 at the first line of a file.

# Return the line without its comments and with empty strings.
function bare(s,    out, c, n) {
    out = ""
    if (in_comment) {
        if (!(n = index(s, "*/"))) return ""
        in_comment = 0
        s = substr(s, n + 2)
    }
    while (match(s, /\/\*|\/\/|"|\047/)) {
        c = substr(s, RSTART, 1)
        out = out substr(s, 1, RSTART - 1)
        if (c != "/") {
            s = substr(s, RSTART + 1)
            n = c == "\"" ? match(s, /^([^"\\]|\\.)*"/) : match(s, /^([^\047\\]|\\.)*\047/)
            s = substr(s, n > 0 ? RLENGTH + 1 : 1)
            out = out c c
        } else if (substr(s, RSTART + 1, 1) == "/") {
            return out
        } else {
            s = substr(s, RSTART + 2)
            if (!(n = index(s, "*/"))) { in_comment = 1; return out }
            s = substr(s, n + 2)
        }
    }
    return out s
}
