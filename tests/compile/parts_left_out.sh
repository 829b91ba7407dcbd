#!/bin/sh
# Parts of the headers can be left out by macros (src/parts, >>options). Each part alone is left
# out, all are, and each alone is kept: the headers compile without a warning. What a program
# declares is the same with any macro, so a file that knows no macro is linked to an implementation
# with each. A call of a part that is left out is an error in words, and so are macros that
# contradict. A table whose verb is left out is refused by the macro's name, and so is a loader that
# asks for what is left out. SOAK=1: each part is
# linked, and a few tests run without it.
dir=build/parts_left_out
. tests/rig/shell_rig
fresh_dir
cc=${CC:-cc}
quick=$cc # for objects: clang takes a third as long
! command -v clang >/dev/null 2>&1 || quick=clang
warn='-std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wundef -Werror -Wno-misleading-indentation'
parts=$(awk '!/^#/ { print toupper($1) }' src/parts)
all=tests/compile/implementation.c

# Print what a file of a program sees, a word on each line, without what makes a call an error.
declared() { # FLAGS...
    $cc -E -P "$@" -x c dlpipe.h | sed 's/__attribute__((error("[^;]*")))//' | tr -s ' \n\t' '\n'
}

refused() { # WORDS FILE FLAGS...
    words=$1 file=$2
    shift 2
    ! $quick -std=c11 -O1 -I. "$@" -c -o $dir/refused.o "$file" 2>$dir/said || fail "$* compiles"
    grep -q "error.*$words" $dir/said || fail "$*: not '$words': $(head -n 3 $dir/said)"
}

$cc -std=c11 -I. -DUSER_ONLY -c -o $dir/smoke.o tests/compile/smoke.c || exit 1
cat >$dir/verbs.c <<'CODE'
#include "dlpipe.h"
#include <stdio.h>
int main(void) {
    dlp_node nodes[] = {{.name = "list", .verb = DLP_LIST, .list = {.n_items = 1}},
                        {.name = "row", .verb = 0}};
    dlp_error e;
    dlp_plan plan;
    for (nodes[1].verb = 1; nodes[1].verb < DLP_VERBS; nodes[1].verb++)
        if (dlp_nodes_plan(nodes, 2, NULL, &plan, &e) == DLP_ERR_UNSUPPORTED)
            printf("%s\n", e.message);
    return 0;
}
CODE
$cc -std=c11 -I. -c -o $dir/verbs.o $dir/verbs.c || exit 1
cat >$dir/asks.c <<'CODE'
#include "dlpipe.h"
#include <stdio.h>
static int fetch(void *user, dlp_item *item) { return (void)user, (void)item, 0; }
static int64_t next(void *user, uint64_t epoch, uint64_t *index, uint64_t max) {
    return (void)user, (void)max, index[0] = epoch, epoch == 0;
}
static void asks(dlp_loader_desc d, const char *what) {
    dlp_field field = {.name = "x", .dtype = DLP_U8};
    dlp_pipe *p = NULL;
    dlp_error e = {0};
    d.dataset = (dlp_dataset){.n_items = 8, .fields = &field, .n_fields = 1, .fetch = fetch};
    d.batch_size = 1;
    d.num_workers = 1;
    printf("%s: %s\n", what, dlp_loader_open(&p, &d, &e) == DLP_OK ? "opened" : e.message);
    dlp_pipe_close(p);
}
int main(void) {
    asks((dlp_loader_desc){.num_workers = 1}, "a loader");
    asks((dlp_loader_desc){.fetcher = DLP_FETCH_THREADS, .in_flight = 2}, "FETCHERS");
    asks((dlp_loader_desc){.workers.workers_max = 2}, "TUNE");
    asks((dlp_loader_desc){.sampler = {.order = DLP_ORDER_BATCHES, .batches.next = next}}, "LISTS");
    return 0;
}
CODE
$cc -std=c11 -I. -c -o $dir/asks.o $dir/asks.c || exit 1
declared >$dir/declared

linked_to() { # NAME: of an object of the implementation
    $cc -o $dir/smoke $dir/smoke.o "$dir/$1.o" -lpthread -ldl && $dir/smoke >$dir/said ||
        fail "smoke.c with $1: $(cat $dir/said)"
    $cc -o $dir/verbs $dir/verbs.o "$dir/$1.o" -lpthread -ldl && $dir/verbs >$dir/verbs.said ||
        fail "verbs with $1"
    $cc -o $dir/asks "$dir/asks.o" "$dir/$1.o" -lpthread -ldl && $dir/asks >$dir/asks.said ||
        fail "asks with $1"
    grep -q '^a loader: opened' $dir/asks.said || fail "a loader with $1: $(cat $dir/asks.said)"
}

said_of() { # PART: what was asked of it is refused by the name of its macro
    grep -q "^$1: .*DLPIPE_NO_$1; compile without it" $dir/asks.said ||
        fail "asked for $1, which is left out: $(cat $dir/asks.said)"
}

for part in $parts; do
    case $part in PARTS | SPLIT) also='-DWITH_S3 -DWITH_DEVICES' ;; *) also= ;; esac
    # shellcheck disable=SC2086
    if [ -n "${SOAK:-}" ] || case $part in PARTS | FILES | TRANSFER) true ;; *) false ;; esac then
        $quick $warn -O0 -DDLPIPE_NO_$part -DWITH_SHM $also -c -o $dir/no.o $all ||
            fail "the headers without $part do not compile"
        linked_to no
    else
        $cc $warn -DDLPIPE_NO_$part -DWITH_SHM $also -fsyntax-only $all ||
            fail "the headers without $part do not compile"
        : >$dir/verbs.said
    fi
    ! grep -qv "DLPIPE_NO_$part,\|DLPIPE_NO_\(PACK\|PARTS\|SPLIT\)," $dir/verbs.said ||
        fail "without $part, a verb names another macro: $(cat $dir/verbs.said)"
    declared -DDLPIPE_NO_$part | cmp -s - $dir/declared ||
        fail "DLPIPE_NO_$part changes what a program declares"
    # shellcheck disable=SC2086
    $cc $warn -DDLPIPE_ONLY_LOADER -DDLPIPE_WITH_$part -DWITH_SHM $also -fsyntax-only \
        $all || fail "the headers with $part alone do not compile"
    refused "DLPIPE_WITH_$part contradicts" dlpipe.h -DDLPIPE_ONLY_LOADER -DDLPIPE_WITH_$part \
        -DDLPIPE_NO_$part -x c
    rm -rf $dir/no.o
    [ -z "${SOAK:-}" ] ||
        env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make test B=$dir/$part CC="$cc -DDLPIPE_NO_$part" \
            O=-O0 TESTS='pipe_basic pipe_ragged samplers' >$dir/log 2>&1 ||
        fail "tests without $part: $(tail -n 20 $dir/log)"
done
# shellcheck disable=SC2086
$cc $warn -O0 -DDLPIPE_ONLY_LOADER -DWITH_SHM -DWITH_S3 -DWITH_DEVICES -c -o $dir/only.o $all ||
    fail 'the headers with the loader alone do not compile'
$quick $warn -DDLPIPE_ONLY_LOADER -fsyntax-only $all ||
    fail "the loader alone does not compile by $quick"
linked_to only
for part in FETCHERS TUNE LISTS; do said_of $part; done
[ "$(grep -c 'compile without DLPIPE_NO_' $dir/verbs.said)" -ge 12 ] ||
    fail "verbs that are left out are not refused in words: $(cat $dir/verbs.said)"
declared -DDLPIPE_ONLY_LOADER | cmp -s - $dir/declared ||
    fail 'DLPIPE_ONLY_LOADER changes what a program declares'

refused 'define that, too' dlpipe.h -DDLPIPE_WITH_TAR -x c
refused 'it wants TAR FETCHERS FILES LINES MIX' dlpipe.h -DDLPIPE_ONLY_LOADER -DDLPIPE_WITH_TAR \
    -DDLPIPE_NO_LINES -x c
printf '#include "dlpipe.h"\nint main(void) { return dlp_tokens_open(0, 0, 0); }\n' >$dir/call.c
refused 'dlp_tokens_open.*compile without DLPIPE_NO_TOKENS' $dir/call.c -DDLPIPE_NO_TOKENS
printf '#include "dlpipe.h"\nint main(void) { return dlp_tar_open(0, 0, 0); }\n' >$dir/call.c
refused 'dlp_tar_open.*DLPIPE_WITH_TAR' $dir/call.c -DDLPIPE_NO_LINES
printf '#include "dlpipe.h"\nint main(void) { dlp_ranks r; return dlp_ranks_describe(&r, 0); }\n' \
    >$dir/call.c
refused 'dlp_ranks_describe.*DLPIPE_WITH_RANKS' $dir/call.c -DDLPIPE_NO_RANKS
printf '#include "dlpipe.h"\nint main(void) { dlp_spsc_close(0); return 0; }\n' >$dir/call.c
refused 'dlp_spsc_close.*DLPIPE_WITH_QUEUES' $dir/call.c -DDLPIPE_NO_QUEUES
[ $wrong -eq 0 ] && echo "parts: without each of" $parts "and with each alone"
[ $wrong -eq 0 ]
