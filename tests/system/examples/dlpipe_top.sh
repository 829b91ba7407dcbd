#!/bin/sh
# dlpipe_top on a live pipe, running and stopped: its JSON, its text, its picture in a terminal, the
# names it lists, and what it says when there is nothing.
dir=build/dlpipe_top_test
. tests/rig/shell_rig
fresh_dir
owner=''
clean() {
    [ -z "$owner" ] || kill -9 $owner 2>/dev/null
}
trap clean EXIT

[ -d /dev/shm ] && [ -d /proc/self/fd ] || { echo 'no /dev/shm or /proc'; exit 78; }

# What of it needs a terminal is left out where none can be made.
lack=''
command -v script >/dev/null 2>&1 || lack='there is no script (bsdutils)'
[ -n "$lack" ] || script -qec 'echo yes' /dev/null </dev/null 2>/dev/null | grep -q yes ||
    lack='no terminal can be made (/dev/ptmx, /dev/pts)'

# A pipe of three workers, two of them of a stage of its own, that goes on until it is killed. Its
# names hold what would command a terminal, and what JSON must escape.
cat >$dir/owner.c <<'END'
#include "../../dlpipe_shm.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int fetch(void *user, dlp_item *it) {
    struct timespec t = {0, 200000};
    (void)user;
    nanosleep(&t, NULL);
    if (it->index % 100 == 7) return DLP_ERR_CALLBACK;
    *(uint32_t *)it->data[0] = (uint32_t)it->index;
    return 0;
}
static int map(void *user, dlp_item *it) {
    (void)user;
    (void)it;
    return 0;
}

int main(int argc, char **argv) {
    dlp_field field = {.name = "x", .dtype = DLP_U32};
    dlp_shm_desc shm = {.name = argv[1]};
    dlp_counter counters[3] = {{"loss", NULL, 0}, {"gpu\033c", "%", 100}, {"never", NULL, 0}};
    dlp_pipe_desc desc = {.name = "a \"b\\ \033[2J", .prefetch_factor = 4, .shm = &shm,
                          .counters = counters, .n_counters = 3, .epochs = DLP_FOREVER};
    int place = argc > 2 ? DLP_PLACE_PROCESSES : DLP_PLACE_THREADS;
    const dlp_node nodes[] = {
        {.name = "sampler", .verb = DLP_LIST, .list = {.n_items = 1000, .shuffle = 1}},
        {.name = "fetch", .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &field, .n_fields = 1},
         .workers = {.num_workers = 1, .on_error = DLP_ON_ERROR_REPLACE, .placement = place}},
        {.name = "my\033c map\303\251", .verb = DLP_MAP, .map = {.item = map},
         .workers = {.num_workers = 2, .placement = place}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 10}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    if (dlp_pipe_open(&p, DLP_NODES(nodes), &desc, &err) != DLP_OK)
        return fprintf(stderr, "%s\n", err.message), 1;
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        if (dlp_pipe_count(p, 0, 0.25) != 0 || dlp_pipe_count(p, 1, 75) != 0) return 1;
        dlp_pipe_release(p, b);
    }
    return 1;
}
END
for e in $dir/owner examples/dlpipe_top; do
    linked $e.c $dir/${e##*/} || exit 1
done
top=$dir/dlpipe_top
name=toptest$$

begin() { # [process]
    $dir/owner $name "$@" 2>$dir/owner.said &
    owner=$!
    await seen $name || fail "the pipe does not begin: $(cat $dir/owner.said)"
}

seen_taken() { seen "$1" && grep -q '"taken":1,' $dir/json; }
seen() { $top --once --json --interval 20 "$1" >$dir/json 2>/dev/null; }

stopped() { # PID...: all their threads
    for pid in "$@"; do
        ! cat /proc/$pid/task/*/status | grep '^State' | grep -qv 'T (stopped)' || return 1
    done
}

not_alive() { ! $top --list | grep -q "^$name .* alive$"; }

drawn() { [ "$(grep -o "$(printf '\033')\[H" $dir/drawn | wc -l)" -ge 3 ]; }

# Is the file one JSON object, and does it say what it should? $2: the state, $3: rates are above 0.
check_json() {
    if command -v python3 >/dev/null 2>&1; then
        python3 - "$1" "$2" "$3" "$owner" "$4" <<'END' 2>$dir/wrong
import json, sys
with open(sys.argv[1], encoding='utf-8') as f:
    o = json.load(f)
state, moves, pid, process = sys.argv[2], sys.argv[3] == '1', int(sys.argv[4]), sys.argv[5] == '1'
assert o['state'] == state and o['pid'] == pid and o['name'] == 'a "b\\ ?[2J', o['name']
assert o['batches'] > 0 and o['items'] == 10 * o['batches'] and o['error'] == 0
assert (o['items_per_s'] > 0) == moves and (o['batches_per_s'] > 0) == moves
assert not moves or 0 <= o['wait_share'] <= 1
assert 0 < o['interval_s'] < 60 and o['uptime_s'] > 0
assert o['limit'].startswith('Limit: ') and o['change'].startswith('Change: ')
assert o['better'] == '' or o['better'].startswith('Better: ')
s = o['slots']
assert s['all'] == 5 and s['held'] <= 1 and s['ready'] + s['open'] <= 4
assert [g['kind'] for g in o['stages']] == ['sampler', 'repeat', 'fetch', 'map', 'batch']
assert o['stages'][3]['name'] == 'my?c map\u00e9' and o['stages'][3]['workers'] == 2
assert all(0 <= g['busy'] <= 1 for g in o['stages'])
assert o['stages'][2]['p99_ns'] >= o['stages'][2]['p50_ns'] > 100000
l = o['links']
assert [(k['from'], k['to'], k['kind']) for k in l] == [
    ('consumer', 'sampler', 'spsc'), ('sampler', 'fetch', 'claim'),
    ('fetch', 'my?c map\u00e9', 'claim'), ('my?c map\u00e9', 'consumer', 'gather')], l
assert [(k['writers'], k['readers']) for k in l] == [(1, 1), (1, 1), (1, 2), (2, 1)]
assert [k['capacity'] for k in l] == [5, 4, 4, 4] and l[0]['bytes'] == 20
assert all(0 <= k['depth'] <= k['capacity'] for k in l) and l[0]['depth'] == s['free']
assert l[3]['depth'] == s['ready'] and l[1]['depth'] <= s['open'] + s['ready']
c = o['counters']
assert [(k['name'], k['unit'], k['value'], k['most']) for k in c] == [
    ('loss', '', 0.25, 0), ('gpu?c', '%', 75, 100), ('never', '', 0, 0)], c
assert 0 < c[0]['noted'] <= o['batches'] + 5 and c[2]['noted'] == 0 and 0 < c[0]['at_s'] < 3600
w = o['workers']
assert [(k['stage'], k['worker']) for k in w] == [(2, 0), (3, 0), (3, 1)]
assert all(k['process'] == process and (k['pid'] == pid) == (not process) for k in w)
assert sum(k['items'] for k in w if k['stage'] == 2) >= o['items']
assert all(k['restarts'] == 0 and (k['index'] is None or 0 <= k['index'] < 1000) for k in w)
END
    else # without python3: balanced, and the main words
        [ "$(tr -cd '{[' <"$1" | wc -c)" -ge 9 ] && grep -q "\"state\":\"$2\"" "$1" &&
            grep -q '"limit":"Limit: ' "$1" && grep -q '"change":"Change: ' "$1"
    fi
}

# The owner may get no core while it is looked at: of five looks one must be right.
looks_well() { # STATE MOVES PROCESSES WHO
    for look in 1 2 3 4 5; do
        timeout 60 $top --once --json --interval 100 $4 >$dir/json || fail "$1: exit code $?"
        check_json $dir/json $1 $2 $3 && return
        echo "look $look: $(tail -n 1 $dir/wrong)"
    done
    fail "wrong JSON: $(cat $dir/wrong $dir/json)"
}

for kind in threads processes; do
    processes=0
    [ $kind = threads ] || processes=1
    # shellcheck disable=SC2046
    begin $([ $kind = threads ] || echo process)
    looks_well running 1 $processes $name
    pids=$(sed 's/.*"workers"//' $dir/json | grep -o '"pid":[0-9]*' | cut -d: -f2)
    kill -STOP $owner $pids
    await stopped $owner $pids || fail 'it does not stop'
    looks_well stopped 0 $processes $owner
    timeout 60 $top --once $name >$dir/text || fail "stopped, as text: exit code $?"
    kill -CONT $owner $pids
    grep -q "^ $name  pid $owner  up .*  stopped" $dir/text || fail "text: $(head -1 $dir/text)"
    grep -q '^Limit: ' $dir/text && grep -q '^Change: ' $dir/text ||
        fail "text: no limit or change: $(cat $dir/text)"
    grep -q '^sampler > fetch  *claim  *1/1  \[[#.]*\] [0-4] of 4$' $dir/text &&
        grep -q '^fetch   *1 ' $dir/text && grep -q '^my?c map.-1 ' $dir/text ||
        fail "text: $(cat $dir/text)"
    grep -q '^loss  *0.25 .* ago$' $dir/text && grep -q '^never  *not noted yet$' $dir/text &&
        grep -q '^gpu?c  *75.0* %  \[#########...\] of 100  .* ago$' $dir/text ||
        fail "counters as text: $(cat $dir/text)"
    [ "$(awk 'length > 90' $dir/text | wc -l)" -eq 0 ] || fail 'text: wider than 80 columns'
    ! grep -q "$(printf '\033')" $dir/text || fail 'text: has commands for a terminal'

    for stretch in newest stall epoch:0 batches:0-4 time:0-1; do
        rm -f $dir/t.svg
        $top --timeline $dir/t.svg --window $stretch $name && grep -q '</svg>' $dir/t.svg ||
            fail "--window $stretch"
    done
    for stretch in '' epoch: epoch:1x batches:3 nothing; do
        $top --timeline $dir/t.svg --window "$stretch" $name 2>/dev/null
        [ $? -eq 2 ] || fail "--window $stretch: exit code is not 2"
    done

    $top --list >$dir/list && grep -q "^$name  *$owner .* alive$" $dir/list ||
        fail "--list: $(cat $dir/list)"
    $top --stale >$dir/list && ! grep -q "^$name " $dir/list || fail 'removed a name that is in use'

    # In a terminal, which `script` makes: drawn in place more than once, ended by q, and restored.
    if [ $kind = threads ] && [ -z "$lack" ]; then
        : >$dir/drawn
        (await drawn; printf q; sleep 0.2) | TERM=xterm timeout 60 script -qec \
            "stty cols 80 rows 24; $top --interval 100 $name; echo code \$?" /dev/null >$dir/drawn
        esc=$(printf '\033')
        grep -q 'code 0' $dir/drawn || fail 'in a terminal: no exit code 0'
        drawn || fail 'in a terminal: drawn once'
        grep -q "$esc\[?1049h" $dir/drawn && grep -q "$esc\[?1049l" $dir/drawn &&
            grep -q "$esc\[?25h" $dir/drawn || fail 'in a terminal: not restored'
        ! grep -q "$esc\[2J\|${esc}c" $dir/drawn || fail 'a name commands the terminal'
        grep -q WORKER $dir/drawn || fail 'in a terminal: no workers'
    fi

    # The owner is killed: the name is stale, and goes.
    kill -9 $owner
    wait $owner 2>/dev/null
    owner=''
    await not_alive # worker processes may take a moment, and take the name along
    $top --once $name >$dir/text 2>$dir/said && fail 'a dead owner: exit code 0'
    grep -q 'gone\|No such file' $dir/said || fail "a dead owner: $(cat $dir/said)"
    if [ $kind = threads ]; then
        $top --stale >$dir/list && grep -q "^$name .* removed$" $dir/list ||
            fail "--stale: $(cat $dir/list)"
    fi
    [ ! -e /dev/shm/dlpipe.$name ] || fail "$kind: left /dev/shm/dlpipe.$name"
done

# Every kind of stage has its name: parts, a cache, chunks that are cut.
cat >$dir/kinds.c <<'END'
#include "../../dlpipe_shm.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int load(void *user, dlp_part *part) {
    (void)user;
    memset(part->data, 0, part->capacity);
    part->bytes = part->capacity;
    return 0;
}
static int fetch(void *user, dlp_item *it) {
    (void)user;
    memset(it->data[0], 0, 16);
    return 0;
}

int main(void) {
    uint64_t items[4] = {5, 5, 5, 5};
    dlp_field field = {.name = "x", .dtype = DLP_U32, .ndim = 1, .shape = {4}};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 4}},
        {.name = "load", .verb = DLP_LOAD,
         .load = {.items = items, .max_part_bytes = 64, .load = load}},
        {.name = "fetch", .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &field, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "cache", .verb = DLP_CACHE, .cache = {.bytes = 4096}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 1}},
        {.name = "split", .verb = DLP_SPLIT, .split = {.chunk_rows = 4, .batch_size = 2}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    dlp_error err;
    if (dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) != DLP_OK)
        return fprintf(stderr, "%s\n", err.message), 1;
    if (dlp_pipe_next(p, &b) == DLP_OK) pause();
    return 1;
}
END
linked $dir/kinds.c $dir/kinds || exit 1
$dir/kinds &
owner=$!
await seen_taken $owner
said=$(sed 's/"links".*//' $dir/json | grep -o '"kind":"[a-z_]*"' | cut -d'"' -f4 | tr '\n' ' ')
[ "$said" = 'sampler repeat parts fetch cache batch split ' ] || fail "kinds of stages: $said"
grep -q '"chunks":{"taken":1,"per_epoch":20,"loadable":1[0-9],"in_use":1,"preload":0,"cpu":{' \
    $dir/json || fail "queues of chunks: $(cat $dir/json)"
$top --once --interval 20 $owner >$dir/text
grep -q '^chunks \[.*\] + 1[0-9] loadable of 20  1 taken' $dir/text &&
    grep -q '^  cpu  \[.*\] # 1 in use  = [0-9]* filled  - [0-9]* loading  . [0-9]* free of' \
        $dir/text &&
    grep -q '^parts  \[.*\] # [0-9]* in use  = [0-9]* loaded  - [0-9]* loading  . ' $dir/text ||
    fail "queues as text: $(cat $dir/text)"
kill -9 $owner
wait $owner 2>/dev/null
owner=''

# The limit is that of the last time: a pipe whose workers were busy has a slow consumer since, and
# then a batch is held for good.
cat >$dir/turns.c <<'END'
#include "../../dlpipe_shm.h"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int slow = 1;
static void sleep_ms(long ms) {
    struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}
static int fetch(void *user, dlp_item *it) {
    (void)user;
    if (__atomic_load_n(&slow, __ATOMIC_SEQ_CST)) sleep_ms(4);
    *(uint32_t *)it->data[0] = 1;
    return 0;
}

int main(void) {
    dlp_field field = {.name = "x", .dtype = DLP_U32};
    dlp_pipe_desc desc = {.epochs = DLP_FOREVER};
    const dlp_node nodes[] = {
        {.name = "list", .verb = DLP_LIST, .list = {.n_items = 1000}},
        {.name = "augment", .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = &field, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 2}}};
    dlp_pipe *p = NULL;
    dlp_batch *b;
    for (int n = dlp_pipe_open(&p, DLP_NODES(nodes), &desc, NULL); n < 500; n++) {
        if (dlp_pipe_next(p, &b) != DLP_OK) return 1;
        if (n == 250) __atomic_store_n(&slow, 0, __ATOMIC_SEQ_CST);
        if (n > 250) sleep_ms(4);
        if (n == 100 || n == 300 || n == 499) puts(n == 100 ? "one" : n == 300 ? "two" : "three");
        fflush(stdout);
        if (n < 499) dlp_pipe_release(p, b);
    }
    pause();
    return 1;
}
END
linked $dir/turns.c $dir/turns || exit 1
$dir/turns >$dir/turn &
owner=$!
limit() { $top --once --interval 200 $owner | grep '^Limit: '; }
turn() { grep -q "$1" $dir/turn; }
for phase in one two three; do
    await turn $phase
    said=$(limit)
    case "$phase $said" in
    "one Limit: stage 'augment': its 1 worker is "*) ;;
    "two Limit: the training step."* | 'two Limit: the consumer: it waits'*) ;;
    'three Limit: the consumer: it has taken no batch for '*' ms, and 2 are ready.'*) ;;
    *) fail "$phase: $said" ;;
    esac
done
kill -9 $owner
wait $owner 2>/dev/null
owner=''

$top >/dev/null 2>&1
[ $? -eq 2 ] || fail 'no arguments: exit code is not 2'
$top --once 999999999 >/dev/null 2>$dir/said
[ $? -eq 1 ] && grep -q 'No such process' $dir/said || fail "no process: $(cat $dir/said)"

$top --once nosuch$$ >/dev/null 2>$dir/said
[ $? -eq 1 ] && grep -q 'no pipe of that name' $dir/said && grep -q -- '--list' $dir/said ||
    fail "no such name: $(cat $dir/said)"

# The picture that README shows is of examples/slow.c: the same tables and names.
linked examples/slow.c $dir/slow || exit 1
$dir/slow >$dir/slow.said &
owner=$!
await eval "$top --once --interval 300 $owner >$dir/text 2>/dev/null" || fail 'no pipe of slow.c'
kill $owner
wait $owner 2>/dev/null
owner=''
names() { awk '/^$/ { on = 0 } /^[A-Z]+  +[A-Z]/ { on = 1; print; next }
    on { sub(/  .*/, ""); print }'; }
names <$dir/text >$dir/names
awk -v back=1 -f tests/tools/screen.awk examples/pictures/top.svg | names >$dir/names.picture
[ "$(wc -l <$dir/names)" -ge 12 ] && cmp -s $dir/names $dir/names.picture ||
    fail "examples/pictures/top.svg is another picture: $(diff $dir/names $dir/names.picture)"
[ $wrong -eq 0 ] || exit 1
[ -z "$lack" ] || skip "in part: $lack"
echo 'dlpipe_top: all is well'
