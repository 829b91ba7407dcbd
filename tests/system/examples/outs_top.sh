#!/bin/sh
# dlpipe_top on a pipe with two outs beside the first: each by its name, with what it may hold,
# holds and missed, as JSON and as text.
dir=build/outs_top_test
. tests/rig/shell_rig
fresh_dir
owner=''
clean() {
    [ -z "$owner" ] || kill -9 $owner 2>/dev/null
}
trap clean EXIT

[ -d /dev/shm ] && [ -d /proc/self/fd ] || { echo 'no /dev/shm or /proc'; exit 78; }

# One out holds two batches for ever, one is never found. With an argument the pipe waits for it.
cat >$dir/owner.c <<'END'
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include <time.h>

static int fetch(void *user, dlp_item *it) {
    struct timespec t = {0, 200000};
    (void)user;
    nanosleep(&t, NULL);
    *(uint32_t *)it->data[0] = (uint32_t)it->index;
    return 0;
}

int main(int argc, char **argv) {
    const dlp_field x = {.name = "x", .dtype = DLP_U32};
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 1000}},
        {.name = "read", .verb = DLP_FETCH, .fetch = {.fetch = fetch, .fields = &x, .n_fields = 1},
         .workers = {.num_workers = 1}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 10}},
        {.name = "train", .verb = DLP_OUT},
        {.name = "log", .from = (const char *[]){"batch", NULL}, .verb = DLP_OUT,
         .queue = {.capacity = 3, .full = DLP_FULL_KEEP_NEWEST}},
        {.name = "view", .from = (const char *[]){"batch", NULL}, .verb = DLP_OUT,
         .queue = {.capacity = 2, .full = argc > 1 ? DLP_FULL_WAIT : DLP_FULL_DROP_NEW}}};
    const dlp_pipe_desc desc = {.epochs = DLP_FOREVER};
    dlp_pipe *p;
    dlp_batch *b;
    dlp_out *log;
    (void)argv;
    if (dlp_pipe_open(&p, DLP_NODES(nodes), &desc, NULL) != DLP_OK) return 1;
    if (dlp_out_find(p, "log", &log) != DLP_OK) return 1;
    if (dlp_out_next(log, &b, 10000) != DLP_OK || dlp_out_next(log, &b, 10000) != DLP_OK) return 1;
    while (dlp_pipe_next(p, &b) == DLP_OK) {
        dlp_pipe_release(p, b);
        if (dlp_out_next(log, &b, 0) == DLP_OK) dlp_out_release(log, b);
    }
    return 1;
}
END
linked $dir/owner.c $dir/owner && linked examples/dlpipe_top.c $dir/top || exit 1

$dir/owner &
owner=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    $dir/top --json --interval 50 $owner >$dir/json 2>/dev/null
    grep -q '"batches":[1-9]' $dir/json && grep -q '"held":2' $dir/json && break
    sleep 0.2
done
grep -q '"outs":\[{"name":"log","capacity":3,"held":[23],"missed":[0-9]*,"full":2},{' \
    $dir/json && grep -q '"view","capacity":2,"held":0,"missed":0,"full":1}\]' $dir/json ||
    fail "outs as JSON: $(cat $dir/json)"
$dir/top --once --interval 20 $owner >$dir/text
grep -q '^out    \[##*.*\] log: # [23] held of 3  missed [0-9]*  goes on with the newest' \
    $dir/text && grep -q '^out  .* view: # 0 held of 2  missed 0  keeps the oldest' $dir/text ||
    fail "outs as text: $(cat $dir/text)"
grep -q '"to":"log","kind":"gather".*"rule":2},{.*"to":"view".*"rule":1}' $dir/json ||
    fail "links of outs as JSON: $(cat $dir/json)"
grep -q '^read > log  .* of 3, newest$' $dir/text &&
    grep -q '^read > view  .* of 2, oldest$' $dir/text &&
    grep -q '^items > read .* of [0-9]*$' $dir/text ||
    fail "links of outs as text: $(cat $dir/text)"
kill -9 $owner
wait $owner 2>/dev/null
owner=''
$dir/owner wait &
owner=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    $dir/top --once --interval 200 $owner >$dir/text 2>/dev/null
    grep -q "^Limit: out 'view' has taken no batch" $dir/text && break
    sleep 0.2
done
grep -q "^Limit: out 'view' has taken no batch, and the pipe waits for it" $dir/text &&
    grep -q '^Change: take and release' $dir/text &&
    grep -q '^slots  \[oo*\.*\] # 0 held  o [1-9] outs' $dir/text ||
    fail "an out that stops the pipe: $(cat $dir/text)"
kill -9 $owner
wait $owner 2>/dev/null
owner=''
[ $wrong -eq 0 ] && echo 'outs_top: all is well'
[ $wrong -eq 0 ]
