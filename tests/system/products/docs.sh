#!/bin/sh
# make docs: each call, struct, field and constant of src/api is on a page and has a man page, each
# call says in a sentence what it does, and no link leads nowhere. examples/API.md is that of today.
dir=build/docs.test
. tests/rig/shell_rig
fresh_dir

python=/usr/bin/python3
[ -x $python ] || skip "there is no $python"
pages="$python src/doc/pages.py"

$pages api >$dir/API.md || exit 1
cmp -s $dir/API.md examples/API.md || fail 'examples/API.md is old: make headers writes it'
$pages stubs >$dir/dlpipe.pyi || exit 1
cmp -s $dir/dlpipe.pyi examples/python/dlpipe.pyi || fail "dlpipe.pyi is old: make headers"
grep '^| `.* |  |$' $dir/API.md && fail 'these calls do not say what they do'

# What the headers declare, by other scripts than that of the pages.
$pages names >$dir/names || exit 1
{
    sed -n 's/^DLPDEF [a-z0-9_ *]*[ *]\(dlp_[a-z0-9_]*\)(.*/call \1/p' src/api/*.h
    sed -n 's/^\(DLPI_INLINE\|static inline\) [a-z0-9_ *]*[ *]\(dlp_[a-z0-9_]*\)(.*/call \2/p' \
        src/api/*.h
    sed -n 's/^typedef struct \(dlp_[a-z0-9_]*\) {$/struct \1/p' src/api/*.h
    cat src/api/*.h | awk -f tests/tools/fields.awk | grep -v ' union$' | sed 's/ /./; s/^/field /'
    sed -n 's/^    X(\([A-Z_]*\), .*/constant DLP_\1/p' src/api/codes.h
} | LC_ALL=C sort -u >$dir/declared
[ "$(grep -c '^call' $dir/declared)" -gt 200 ] || fail 'few calls are declared'
[ "$(grep -c '^field' $dir/declared)" -gt 1000 ] || fail 'few fields are declared'
[ "$(grep -c '^constant' $dir/declared)" -gt 25 ] || fail 'few codes are declared'
LC_ALL=C sort -u $dir/names >$dir/sorted
missing=$(LC_ALL=C comm -23 $dir/declared $dir/sorted)
[ -z "$missing" ] || fail "not on the pages: $missing"
for what in call struct field; do # and nothing that is not declared
    more=$(grep "^$what " $dir/sorted | LC_ALL=C comm -13 $dir/declared -)
    [ -z "$more" ] || fail "on the pages alone: $more"
done

$pages html $dir/html || exit 1
cat >$dir/links.py <<'END_OF_LINKS'
import html.parser, os, sys
folder, names = sys.argv[1:]
ids, links = {}, []
class Page(html.parser.HTMLParser):
    def __init__(self, name):
        super().__init__()
        self.name, self.open = name, []
        ids[name] = set()
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)
        for key, value in attrs:
            if key == "id":
                assert value not in ids[self.name], (self.name, "twice", value)
                ids[self.name].add(value)
            if key in ("href", "src"):
                links.append((self.name, value))
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (self.name, self.getpos(), tag)
for name in sorted(os.listdir(folder)):
    if name.endswith(".html"):
        page = Page(name)
        page.feed(open(os.path.join(folder, name)).read())
        assert page.open == [], (name, page.open)
assert len(ids) > 70 and len(links) > 3000, (len(ids), len(links))
wrong = [(at, to) for at, to in links if not os.path.exists(os.path.join(folder, to.split("#")[0]))
         or "#" in to and to.split("#")[1] not in ids[to.split("#")[0] or at]]
all_ids = set().union(*ids.values())
wrong += [n for n in open(names).read().split("\n") if n and n.split()[1] not in all_ids]
for w in wrong:
    print(w)
sys.exit(bool(wrong))
END_OF_LINKS
$python $dir/links.py $dir/html $dir/names || fail 'these links or names have no place'

$pages man $dir/man/man3 || exit 1
grep '^call' $dir/declared | while read -r _ call; do
    [ -s "$dir/man/man3/$call.3" ] || echo "$call has no man page"
done >$dir/said
[ ! -s $dir/said ] || fail "$(cat $dir/said)"
if command -v man >/dev/null 2>&1; then
    man -M $dir/man dlp_pipe_try_next >/dev/null 2>&1 && fail 'man finds a call that is none'
    for page in dlpipe dlp_pipe_open dlp_code_hint dlp_batch DLP_ERR_ARG; do
        MANWIDTH=90 man -M $dir/man $page >$dir/said 2>/dev/null || fail "man $page: exit code $?"
        grep -qi "$page" $dir/said || fail "man $page does not name it"
    done
fi

# Pages for people: the links, sections and names in them are there; the picture of the rooms has
# each folder on the floor that floors.sh holds it to; the questions are answered shortly.
cat dlpipe.h dlpipe_shm.h dlpipe_s3.h >$dir/headers
for page in examples/QUESTIONS.md examples/README.md src/README.md; do
    grep -o '](\([^)h#][^)#]*\)' $page | sed 's/](//' | while read -r to; do
        [ -e "${page%/*}/$to" ] || echo "$page: there is no $to"
    done
    grep -o '>>[a-z][a-z0-9-]*' $page | sort -u | while read -r at; do
        grep -q "^   $at  *[A-Z]" $dir/headers || echo "$page: there is no section $at"
    done
    grep -o '\<\(dlp_\|DLP_\)[A-Za-z0-9_]*' $page | sort -u | while read -r name; do
        grep -qw "$name" $dir/headers || echo "$page: there is no $name"
    done
done >$dir/said
[ ! -s $dir/said ] || fail "$(cat $dir/said)"
[ "$(grep -c '^\*\*' examples/QUESTIONS.md)" -ge 14 ] || fail 'few questions are answered'
awk 'BEGIN { RS = "" } /^\*\*/ && gsub(/[^ \n]+/, "&") > 75 { print "a long answer: " $0; bad = 1 }
    /^\*\*/ && !/\[[a-z_.0-9]+\]\(|>>/ { print "an answer without a link: " $0; bad = 1 }
    END { exit bad }' examples/QUESTIONS.md || wrong=1
sed -n '/^levels=/,/"$/p' tests/tools/floors.sh | sed 's/levels=//; s/["\\]//g' | tr -s ' ' '\n' |
    grep . | awk '{ print NR, $0 }' >$dir/floors
sed -n 's/^ *\([0-9][0-9]*\)  \([a-z0-9, ]*[a-z0-9]\)   *.*/\1 \2/p' src/README.md |
    sed 's/, /,/g' | sort -n | diff $dir/floors - >$dir/said ||
    fail "src/README.md: the picture has other rooms than floors.sh: $(cat $dir/said)"
[ $wrong -eq 0 ]
