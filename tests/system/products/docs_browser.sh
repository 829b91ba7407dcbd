#!/bin/sh
# The pages of make docs in a browser without a screen, opened as files: the search finds names
# and words, and its first line leads to the place.
dir=build/docs.browser
. tests/rig/shell_rig
fresh_dir

python=/usr/bin/python3
[ -x $python ] || skip "there is no $python"
command -v chromium >/dev/null 2>&1 || {
    echo 'chromium is not installed (make deps-more)'
    exit 78
}
$python src/doc/pages.py html $dir/html || exit 1

dom() { # PAGE: what the browser makes of it
    HOME=$PWD/$dir timeout 60 chromium --headless --no-sandbox --disable-gpu --no-first-run \
        --user-data-dir="$PWD/$dir/user" --dump-dom "file://$PWD/$dir/html/$1" \
        >$dir/dom 2>$dir/said || fail "$1: exit code $?: $(tail -n 5 $dir/said)"
    grep -o '<div id="found".*</div></header>' $dir/dom | sed 's/<a /\n<a /g' |
        grep '^<a ' >$dir/found
}
first() { # QUERY HREF: the first place that the search finds
    dom "index.html?q=$1"
    head -n 1 $dir/found | grep -q "href=\"$2\"" || fail "$1: $(head -n 1 $dir/found)"
}
first pipe_next 'pipe.html#dlp_pipe_next'
first close_timeout 'pipe.html#dlp_pipe_desc.close_timeout_ms'
first 'length-grouped%20sampler' 'glossary.html' # words of the text
[ "$(grep -c . $dir/found)" -lt 20 ] || fail 'many places have these words'
dom 'index.html?q=zzzz'
grep -q 'Nothing has all these words' $dir/dom || fail 'zzzz was found'
[ $wrong -eq 0 ]
