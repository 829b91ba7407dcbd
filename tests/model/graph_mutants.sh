#!/bin/sh
# Break the making of items on purpose, in the eight ways that the order of a table forbids, and see
# that the named test notices each.
#
#   graph_mutants.sh       the first of the list below; SOAK=1: all; prints which test catches what
#   graph_mutants.sh N     the N-th alone, with all that the test says
#
# A mutant is a name (=), the test that is to catch it and its arguments (@), lines of dlpipe.h (-)
# and what takes their place (+). The lines must be found exactly once, white space included, else
# the mutant no longer applies and this test fails. A test that does not end within a minute has
# noticed the mutant, too.
dir=build/graph_mutants
. tests/rig/shell_rig
. tests/rig/mutate
fresh_dir

cat >$dir/list <<'MUTANTS'
= no phase: after a resume a mix begins at turn 0 of its schedule
@ behind 2
-    if (set) j->streams[s - j->found.cursors.first].phase = path->phase;
+    if (set) j->streams[s - j->found.cursors.first].phase = 0;
= mix ready: a mix takes an item that is ready where the branch drawn has none
@ branches
-    return dlpi_mix_at(j->schedule, (j->streams[i].phase + rows) % j->period);
+    const uint32_t drawn = dlpi_mix_at(j->schedule, (j->streams[i].phase + rows) % j->period);
+    const uint64_t *taken = j->streams[i].drawn;
+    if (rows > 0 && taken[drawn] == j->at[drawn].x.found.streams[i].rows)
+        for (uint32_t b = 0; b < j->n; b++)
+            if (taken[b] < j->at[b].x.found.streams[i].rows) return b;
+    return drawn;
= completion: a stream takes the cell that is made first, whichever input it has
@ found
-            if (low != DLPI_INPUT_LOADED && low != DLPI_INPUT_FAILED) break;
+            if (low != DLPI_INPUT_LOADED && low != DLPI_INPUT_FAILED) {
+                const uint32_t c = x->known, next = q->use[c].next;
+                if (next == DLPI_FOUND_NONE || q->use[next].epoch != q->epoch ||
+                    dlpi_input_state(p, next) != DLPI_INPUT_LOADED)
+                    break;
+                q->use[c].next = q->use[next].next;
+                q->use[next].next = c;
+                if (x->head == c)
+                    x->head = next;
+                else
+                    q->use[x->last_known].next = next;
+                if (x->tail == next) x->tail = c;
+                x->known = next;
+                continue;
+            }
= append: an input that is made again keeps an item of the try before
@ stacks 12
-    b->made = 0;
-    if (!plain) {
+    b->made = cell->rec != 0;
+    if (!plain) {
= free at place: a cell is free once its last item has a place in a batch
@ branches
-    u->used = dlpi_input_use(p, c, s);
+    dlpi_input_use(p, c, s);
= placed: a state says how far batches are asked for, not what was delivered
@ found
-    return s == DLPI_NO_SLOT ? &p->after.source : dlpi_slot_source(p, s);
+    return s == DLPI_NO_SLOT ? &p->after.source : dlpi_slot_source(p, (s + 1) % p->n_slots);
= parent at claim: the item of a branch is free once a cell for its joined row is asked for
@ behind 2
-    cell->first = u->ordinal - index; /* random numbers go by the place of the row */
+    cell->first = u->ordinal - index;
+    dlpi_joined_release(q, c);
= free at claim: a record's place is free once a worker has taken the record
@ stacks_fed
-        dlpi_field_copy(&l->fs.at[f], to + l->at[f], from + l->at[f], length[f]);
+        dlpi_field_copy(&l->fs.at[f], to + l->at[f], from + l->at[f], length[f]);
+    memset(dlpi_arrived_at(p, x, c, dlpi_input_at(p, c)->made), 0x5a, (size_t)own);
MUTANTS
count=$(grep -c '^= ' $dir/list)

named() { # LETTER NUMBER: the line of the mutant that begins with the letter
    awk -v n="$2" -v letter="$1" '/^=/ { k++ } k == n && substr($0, 1, 1) == letter {
        print substr($0, 3) }' $dir/list
}

# Which test notices mutant $1? One line into $dir/$1.result, which says nothing if none does.
try_mutant() {
    at=$dir/$1
    : >$at.result
    mkdir -p $at && cp -r dlpipe_shm.h dlpipe_s3.h tests $at || exit 1
    mutate $dir/list "$1" dlpipe.h >$at/dlpipe.h ||
        { echo 'NO LONGER APPLIES' >$at.result; return; }
    # shellcheck disable=SC2046
    set -- "$1" $(named @ "$1")
    test=$2
    shift 2
    ${CC:-cc} -std=c11 -w -O0 -o $at/test "$(find $at/tests -name "$test.c")" $at/tests/rig/lib.c \
        -lpthread -lm -ldl >$at/log 2>&1 || { echo 'DOES NOT COMPILE' >$at.result; return; }
    timeout -k 1 60 $at/test "$@" >$at/log 2>&1
    code=$?
    case $code in
    0 | 77) ;;
    1) tail -n 1 $at/log >$at.result ;;
    *) echo "$test: ends with code $code" >$at.result ;;
    esac
    [ -z "$only" ] || cat $at/log
    rm -rf $at
}

only=${1:-}
first=${only:-1} last=${only:-1}
[ -z "${SOAK:-}" ] || [ -n "$only" ] || last=$count
i=$first
while [ "$i" -le "$last" ]; do
    try_mutant "$i"
    result=$(cat "$dir/$i.result")
    case $result in
    '') fail "$(named "=" "$i"): not caught" ;;
    NO* | DOES*) fail "$(named "=" "$i"): $result" ;;
    *) printf '%d %s\n  %s\n' "$i" "$(named "=" "$i")" "$result" ;;
    esac
    i=$((i + 1))
done
echo "$((last - first + 1)) of $count mutants, $wrong not caught"
[ $wrong -eq 0 ]
