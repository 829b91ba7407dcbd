#!/bin/sh
# Each rule of lint.sh must let good text pass and find bad text. The snippets spell what they break
# in pieces where this file itself would break the rule.
dir=build/lint_selftest
. tests/rig/shell_rig
fresh_dir
ran=0

# expect RULE|clean FILE TEXT: lint says RULE of TEXT, and nothing else, or nothing at all
expect() {
    printf '%b' "$3" >"$dir/$2"
    said=$(sh tests/tools/lint.sh rules "$dir/$2")
    code=$?
    rules=$(echo "$said" | awk -F': ' 'NF > 1 { print $2 }' | sort -u | tr '\n' ' ')
    ran=$((ran + 1))
    if [ "$1" = clean ]; then
        [ $code -eq 0 ] && [ -z "$said" ] && return
    else
        [ $code -ne 0 ] && [ "$rules" = "$1 " ] && return
    fi
    wrong=$((wrong + 1))
    printf 'expected %s of:\n%b\ngot code %s and:\n%s\n\n' "$1" "$3" $code "$said"
}

head='/* dlpipe.h\n   >>use  how\n   >>contents\n   >>use   how\n   >>atomics   shim\n'
head="$head   >>queues  lanes\n*/\n/* ---\n   >>atomics   shim */\n"
shim='#define DLPI_LOAD_ACQ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)\n'
body="$head$shim/* ---\n   >>queues  lanes */\n"
pair='DLPI_STORE_REL(&a, 1); /* R1 -> A1 */\nx = DLPI_LOAD_ACQ(&a); /* A1 <- R1 */\n'

expect clean dlpipe_a.h "$body$pair"
expect clean dlpipe_a.h "$body/* __atomic and volatile in a remark */ puts(\"volatile\");\n"
expect clean dlpipe_a.h "${body}void dlpi_pause(void) {\n__asm__ __volatile__(\"yield\");\n}\n"
for word in '__atomic_load_n(&a, 0)' '__sync_synchronize()' '_Atomic int a' 'volatile int a' \
    'atomic_thread_fence(0)' '__asm__("nop")' 'volatile sig_atomic_t a'; do
    expect atomics dlpipe_a.h "$body$word;\n"
done
expect atomics example.c 'volatile int a;\n'
expect clean example.c 'static volatile sig_atomic_t a;\n'
expect atomics dlpipe_a.h "${body}void dlpi_pause(void) {\n}\nvoid g(void) { __asm__(\"\"); }\n"

expect label dlpipe_a.h "${body}x = DLPI_LOAD_ACQ(&a);\n"
expect label dlpipe_a.h "${body}x = DLPI_CAS_SEQ(&a, &e, 1); /* the claim */\n"
expect label dlpipe_a.h "${body}DLPI_KEEP_ORDER();\n"
expect label dlpipe_a.h "$body/* A1 <- R1, R1 */\ny = 0;\nx = DLPI_LOAD_ACQ(&a);\n"
expect clean dlpipe_a.h "$body/* R1 */\n$pair/* A1 <- R1 */\nx = DLPI_LOAD_ACQ(&a);\n"
expect clean dlpipe_a.h "${body}n = DLPI_LOAD_RLX(&a);\n"
expect partner dlpipe_a.h "${body}x = DLPI_LOAD_ACQ(&a); /* A7 */\n"

expect clean dlpipe_a.h "$body/* in region */\nstruct a {\n    uint64_t b; /* *c */\n};\nint *p;\n"
expect pointer dlpipe_a.h "$body/* in region */\nstruct a {\n    char *p;\n};\n"
typedef='typedef struct a { /* in region */\n    int b;\n    char *p;\n} a;\n'
expect pointer dlpipe_a.h "$body$typedef"
nested='struct a {\n  struct { int b; } c;\n  int (*f)(void);\n};\n'
expect pointer dlpipe_a.h "$body/* in region */\n$nested"

expect macro dlpipe_a.h "$body#define A(a) \\\\\n    if (a) return 1\n"
expect macro dlpipe_a.h "$body#define A(a) return (a)\n"
expect clean dlpipe_a.h "$body#define A(returns) \\\\\n    returns\nint f(void) { return 1; }\n"
expect clean example.c '#define A(a) return (a)\n'

expect anchor dlpipe_a.h "$body/* ---\n   >>impl-core  parts */\n"
expect anchor dlpipe_a.h "$head"
expect anchor dlpipe_a.h "$body/* ---\n   >>queues  again */\n"
expect anchor dlpipe_a.h "/*\n   >>contents\n   >>b\n   >>a\n*/\n/*\n   >>a */\n/*\n   >>b */\n"
expect anchor dlpipe_a.h "/*\n   >>contents\n   >>b >>a\n*/\n/*\n   >>a */\n/*\n   >>b */\n"
expect anchor dlpipe_a.h "/*\n   >>contents\n   >>a >>b\n*/\n/*\n   >>a */\n"
expect clean dlpipe_a.h "/*\n   >>contents\n   >>a >>b\n*/\n/*\n   >>a */\n/*\n   >>b */\n"
expect anchor dlpipe_a.h "/*\n   >>a  no table */\n"
expect clean dlpipe_a.h "${body}x = a\n    >> b;\n"

long=$(printf '%0101d' 0)
expect columns text.sh "$long\n"
expect clean text.sh "${long#0}\n"
for word in 'be''lls' 'ru''ng' 'a fli''ght' 'an''ew' 'n_na''ps' 'is to be'' had' 'looks'' round'; do
    expect word text.c "/* $word of it */\n"
done
expect clean text.c '/* labels rungs in flight, in_flight\n   flights */\n'
expect tab text.sh 'a\tb\n'
expect trailing text.sh 'a \n'
for word in 'TO''DO' 'FI''XME' 'X''XX' 'HA''CK'; do
    expect left-over text.sh "# $word later\n"
done
expect clean text.sh 'mktemp /tmp/dlp.XX''XXXX\n'
for word in '/ho''me/me/x' '/ro''ot/x' '/wo''rk/x' 'sha''red/x.md' '(/mn''t/x)'; do
    expect outside text.sh "see $word\n"
done
expect clean text.sh 'see build/work/x, /usr/share/x, /dev/shm/x, $HOME/work/x\n'

# broken CHECK WORDS FILE SED: in a copy of the tree, with the numbers of that tree as known ones,
# CHECK passes; with FILE so edited it fails and says WORDS. Edits that follow each other and are of
# one CHECK are made together: it says the words of each.
tree=$dir/tree
mkdir -p $tree/tests
cp -r src dlpipe*.h $tree/
(cd tests && cp -r tools rig unit system model gpu compile ../$tree/tests/)
mkdir -p $tree/tests/fuzz && cp tests/fuzz/*.c $tree/tests/fuzz/
judged() { # the edits up to here
    [ -n "$before" ] || return 0
    (cd $tree && sh tests/tools/$before.sh) >$dir/after 2>&1 && fail "$before lets pass all edits"
    while IFS= read -r words; do
        grep -q "$words" $dir/after || fail "$before does not say \"$words\""
    done <$dir/words
    cp -r $dir/whole/. $tree
}
broken() {
    checks=$((checks + 1))
    if [ "$1" != "$before" ]; then
        judged
        rm -rf $dir/whole
        : >$dir/words
        case $1 in
        floors | heads) ;;
        *) (cd $tree && sh tests/tools/$1.sh known >known && mv known tests/tools/$1.known) ;;
        esac
        (cd $tree && sh tests/tools/$1.sh) >$dir/before 2>&1 ||
            fail "$1 fails in a copy of the tree: $(cat $dir/before)"
        before=$1
    fi
    mkdir -p "$dir/whole/$(dirname "$3")"
    [ -e "$dir/whole/$3" ] || cp "$tree/$3" "$dir/whole/$3"
    cp "$tree/$3" $dir/edited
    sed -i "$4" "$tree/$3"
    ! cmp -s "$tree/$3" $dir/edited || fail "$1: changes nothing: $3: $4"
    echo "$2" >>$dir/words
}
checks=0
before=

broken floors 'row/run.h -> work/tune.h' src/row/run.h '2i #include "work/tune.h"'
broken floors 'wait/awake.h stands above its floor' src/dlpipe.h.in \
    '/wait.awake/d; s|^#include "row/run.h"|&\n#include "wait/awake.h"|'
broken floors 'fail/fail.h: dlpi_seen is of observe' src/fail/fail.h '2a struct dlpi_seen;'
broken floors 'take it out of' tests/tools/floors.known '$a pipe/ops.h: dlpi_none is of work'
broken floors 'row/rows.h: names dlpi_whole of deliver/whole.h' src/row/rows.h \
    '$a static const dlpi_lender_ops dlpi_whole;\nstatic const void *dlpi_probe = \&dlpi_whole;'
broken floors 'row/rows.h: nothing names dlpi_none' src/row/rows.h \
    '$a static void dlpi_none(void) {}'
broken comments 'row/rows.h 1, known: 0' src/row/rows.h \
    '$a \\nstatic void dlpi_probe(void) {\n\n\n\n\n\n}'
broken rooms 'row .*MORE' src/row/rows.h '$a int one_line_more;'
broken labels 'twice X2 2' src/row/run.h '$a /* X2   running   the worker */'
broken labels 'nowhere X9' src/row/run.h '$a /* X9 <- X9 */'
broken rows 'calls row/rows.h dlpi_probe 1, known: 0' src/row/rows.h \
    '$a static int dlpi_probe(dlpi_worker *w) {\n    return w->st->item(w->st->user, \&w->item);\n}'
broken rows 'stores stages/map.h probe 1' src/stages/map.h \
    '$a static void probe(dlpi_worker *w) { DLPI_STORE_RLX(\&w->block->running, 0); }'
broken systems '  calls [0-9]*, known' src/row/rows.h \
    '$a static void dlpi_probe(void) {\n    close(0);\n}'
broken systems 'uses of errno [0-9]*, known' src/row/rows.h \
    '$a static int dlpi_probe_errno(void) { return errno; }'
broken systems 'headers [0-9]*, known' src/row/rows.h '2i #include <sched.h>'
broken systems 'macros 1, known: 0' src/row/rows.h '$a #ifdef __linux__\n#endif'
broken systems 'names 1, known: 0' src/row/rows.h '$a static int dlpi_probe_near(int near) {}'
broken systems 'formats 1, known: 0' src/row/rows.h '$a static const char probe[] = "%zu";'
of='/* Of that and those of it, that of which is to ha''ve twice as many words as one can read in'
of="$of one go, which are thirty and one more than that, if I have counted well. */"
for what in begins long twice word; do broken words "row/run.h $what" src/row/run.h "\$a $of"; done
broken heads 'row/run.h: no line' src/row/run.h '/^.. tests:/d'
broken heads 'there is no test tests/unit/row/none' src/row/rows.h 's|tests: |&unit/row/none, |'
broken heads 'lines of tests' dlpipe.h '$a /* tests: unit/row/none */'
probe='$a static bool probe(dlp_pipe *p) {\n    return p->keeper;\n}'
broken features 'work/recover.h speaks' src/work/recover.h "$probe"
broken features 'deliver/whole.h roles 1, known: 0' src/deliver/whole.h \
    '$a static bool probe(dlp_pipe *p) {\n    return p->keeper != NULL;\n}'
broken features 'stages/map.h asks' src/stages/map.h \
    '$a static bool probe(dlp_pipe *p) {\n    return p->preload != 0;\n}'
broken features 'pipe/pipe.h fields' src/pipe/pipe.h 's/^struct dlp_pipe {$/&\n    void *more;/'
broken sizes 'bytes of struct dlp_pipe [0-9]*, known' src/pipe/pipe.h \
    's/^struct dlp_pipe {$/&\n    void *more;/'
broken sizes 'fields of descs [0-9]*, known' src/api/files.h \
    's/^typedef struct dlp_files_desc {/&\n    int more;/'
broken sizes 'public functions [0-9]*, known' src/api/parts.h '$a DLPDEF int dlp_probe(void);'
judged

echo "lint_selftest: $ran snippets, $checks checks broken, $wrong wrong"
[ $wrong -eq 0 ]
