#!/bin/sh
# Which sentences of comments in src/ are hard to read? For each file are counted:
#   begins   a sentence that begins with "Of", "The same", "Those" or "That of"
#   twice    a sentence that has "those of" or "that of" twice
#   long     a sentence of more than 30 words
#   word     a phrase that has a plainer one: $old below
# No count may be above that of words.known. A sentence ends with its comment, an empty line or a
# row of a table: a line that has two spaces inside.
#
#   tests/tools/words.sh           the counts, against words.known
#   tests/tools/words.sh list      the sentences: words.sh list | grep FILE
#   tests/tools/words.sh known     what words.known is to hold
dir=build/words
. tests/rig/shell_rig
fresh_dir
old='(^|[^a-z])(to be ha[d]|is to ha[v]e|ane[w]|whoeve[r])([^a-z]|$)'
# Shapes that hide the noun or the verb: "what is left to do", "who claims", "the dearest", "so many
# units took so long each", "is there already says", "a desc s zero means", "carry its reserved".
old="$old|(^|[^a-z])(what is (left|asked|there|said) |who (claims|lacks|looke[d])"
old="$old|who has (claimed|read|it)|carry its reserve[d]|goes by its|the dearest"
old="$old|by what [a-z]+ cost|cells of which|of so many"
old="$old|so long each|already says|zero means|behind a stop|has nothing to do with (it|them)"
old="$old|none of its|none of this stage)"

# shellcheck disable=SC2046
awk -v old="$old" '
function say(what, sentence) { print FILENAME, what, begun, sentence }
function judge(sentence,    s, n, word) {
    sub(/^[ *-]+/, "", sentence)
    if (sentence ~ /^(Of|The same|Those|That of)( |$)/) say("begins", sentence)
    s = tolower(sentence)
    if (gsub(/(^|[^a-z])th(at|ose) of /, "&", s) > 1) say("twice", sentence)
    n = split(sentence, word, " ")
    if (n > 30) say("long", n ": " sentence)
    if (s ~ old) say("word", sentence)
}
function ends(    at) {
    while ((at = match(text, /[.!?]\)? +[^ ]/))) {
        judge(substr(text, 1, at))
        text = substr(text, at + 1)
        sub(/^\)? */, "", text)
    }
    if (text ~ /[A-Za-z]/) judge(text)
    text = ""
}
function add(line) {
    gsub(/^[ \/]+| +$/, "", line)
    if (line == "" || line ~ /[^ .]  +[^ ]/ || line ~ /^(-+|>>.*)$/) { ends(); return }
    if (text == "") begun = FNR
    text = text (text == "" ? "" : " ") line
}
FNR == 1 { ends(); inside = 0; sub(/^src\//, "", FILENAME) }
{
    rest = $0
    for (;;) {
        at = index(rest, inside ? "*/" : "/*")
        if (inside) add(at ? substr(rest, 1, at - 1) : rest)
        if (!at) break
        if (inside) ends()
        inside = !inside; rest = substr(rest, at + 2)
    }
}
END { ends() }' $(ls src/*/*.h | grep -v licence) >$dir/found
awk '{ n[$1 " " $2]++ } END { for (k in n) print k, n[k] }' $dir/found | LC_ALL=C sort >$dir/counts

case ${1:-} in
list) sed 's/^\([^ ]*\) \([^ ]*\) \([^ ]*\) /src\/\1:\3: \2: /' $dir/found; exit ;;
known)
    echo '# Hard sentences of comments in each file: words.sh. These may only become fewer.'
    cat $dir/counts
    exit
    ;;
esac
echo "words:$(awk '{ n[$2] += $3 } END { for (w in n) printf " %s %d", w, n[w] }' $dir/counts)"
counts_held words
[ $wrong -eq 0 ]
