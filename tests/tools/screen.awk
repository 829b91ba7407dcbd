# What a program writes to a terminal, as a picture, which a page can show on light and dark ground:
#
#   build/examples/slow & sleep 2; build/examples/dlpipe_top --once $! |
#       awk -v title='dlpipe_top' -f tests/tools/screen.awk >examples/pictures/top.svg
#
# And the lines of such a picture again: awk -v back=1 -f tests/tools/screen.awk PICTURE
function escaped(s) {
    gsub(/&/, "\\&amp;", s)
    gsub(/</, "\\&lt;", s)
    gsub(/>/, "\\&gt;", s)
    return s
}
back {
    if (sub(/^<text class='[a-z]+' x='16' y='[0-9]+'>/, "")) {
        sub(/<\/text>$/, "")
        gsub(/&lt;/, "<")
        gsub(/&gt;/, ">")
        gsub(/&amp;/, "\\&")
        print
    }
    next
}
{ line[NR] = $0; if (length($0) > most) most = length($0) }
END {
    if (back) exit
    width = 32 + int(most * 7.9)
    height = 40 + 17 * NR
    printf "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d' ",
        width, height, width, height
    print "role='img' font-family='ui-monospace,Menlo,Consolas,monospace' font-size='13' " \
        "xml:space='preserve'>"
    print "<title>" escaped(title) "</title>"
    print "<style>.page{fill:#f6f8fa}.plain{fill:#1f2328}.head{fill:#59636e;font-weight:600}" \
        ".first{fill:#1f2328;font-weight:600}.limit{fill:#bc4c00}"
    print "@media (prefers-color-scheme:dark){.page{fill:#151b23}.plain,.first{fill:#e6edf3}" \
        ".head{fill:#9198a1}.limit{fill:#f0883e}}</style>"
    print "<rect class='page' width='" width "' height='" height "' rx='6'/>"
    for (i = 1; i <= NR; i++) {
        if (line[i] ~ /^Limit: /) advice = 1
        if (line[i] ~ /^slots /) advice = 0
        kind = i == 1 ? "first" : line[i] ~ /^[A-Z]+  +[A-Z]/ ? "head" : advice ? "limit" : "plain"
        printf "<text class='%s' x='16' y='%d'>%s</text>\n", kind, 14 + 17 * i, escaped(line[i])
    }
    print "</svg>"
}
