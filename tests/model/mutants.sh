#!/bin/sh
# Break the queues on purpose, one small change at a time, and see that a test notices each.
#
#   mutants.sh         first every ordered access made relaxed (the model checker does that
#                            by itself), then every twentieth of the list below; SOAK=1: all;
#                            prints who catches what
#   mutants.sh N       the N-th alone, with all that the tests say
#
# A mutant is a name (=), perhaps the one unit test to ask (@, to save time; else all are asked, the
# model checker first), lines of dlpipe.h (-) and what takes their place (+). The lines must be
# found exactly once, white space included, else the mutant no longer applies and the test fails.
# 78 where the model checker cannot run.
. tests/rig/mutate
set -u
cc=${CC:-cc}
out=build/mutants
units='queue_spsc queue_mpsc queue_wait'
flags='-std=c11 -w -O0 -DDLPIPE_IMPLEMENTATION'

mutants() {
    cat <<'MUTANTS'
= push: published before the record is written
-    dlpi_put_record(dlpi_slot(tx->slots, tx->capacity, tx->tail, tx->record_bytes), record,
-                    tx->record_bytes);
-    dlpi_spsc_publish_tx(tx, 1);
+    dlpi_spsc_publish_tx(tx, 1);
+    dlpi_put_record(dlpi_slot(tx->slots, tx->capacity, tx->tail - 1, tx->record_bytes), record,
+                    tx->record_bytes);
= push of a burst: published before the records are written
-    dlpi_copy_in(tx->slots, tx->capacity, tx->tail, tx->record_bytes, records, n);
-    dlpi_spsc_publish_tx(tx, n);
+    dlpi_spsc_publish_tx(tx, n);
+    dlpi_copy_in(tx->slots, tx->capacity, tx->tail - n, tx->record_bytes, records, n);
= pop: head published before the record is read
-    dlpi_get_record(record, dlpi_slot(rx->slots, rx->capacity, rx->head, rx->record_bytes),
-                    rx->record_bytes);
-    dlpi_spsc_take(rx, 1);
+    dlpi_spsc_take(rx, 1);
+    dlpi_get_record(record, dlpi_slot(rx->slots, rx->capacity, rx->head - 1, rx->record_bytes),
+                    rx->record_bytes);
= pop of a burst: head published before the records are read
-    dlpi_copy_out(rx->slots, rx->capacity, rx->head, rx->record_bytes, records, max);
-    dlpi_spsc_take(rx, max);
+    dlpi_spsc_take(rx, max);
+    dlpi_copy_out(rx->slots, rx->capacity, rx->head - max, rx->record_bytes, records, max);
= pop of a burst from a bundle: head published before the records are read
-        dlpi_copy_out(rx->at->slots, rx->at->capacity, rx->at->head, rx->at->record_bytes,
-                      to + done * rx->at->record_bytes, n);
-        dlpi_spsc_take(rx->at, n);
+        dlpi_spsc_take(rx->at, n);
+        dlpi_copy_out(rx->at->slots, rx->at->capacity, rx->at->head - n, rx->at->record_bytes,
+                      to + done * rx->at->record_bytes, n);
= tail: wake word looked at before the store
-    DLPI_STORE_REL(&tx->lane->tail, tx->tail); /* LT1 -> LT2 */
-    DLPI_KEEP_ORDER();
-    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(tx->wake_word) != 0)) /* LB1 <- LB3 */
+    uint32_t rings = DLPI_LOAD_RLX(tx->wake_word);
+    DLPI_STORE_REL(&tx->lane->tail, tx->tail);
+    DLPI_KEEP_ORDER();
+    if (rings != 0)
= tail: wake word not looked at
-    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(tx->wake_word) != 0)) /* LB1 <- LB3 */
+    if (0)
= tail: published one record too far
-    DLPI_STORE_REL(&tx->lane->tail, tx->tail); /* LT1 -> LT2 */
+    DLPI_STORE_REL(&tx->lane->tail, tx->tail + 1);
= tail: taken back when the lane is full
-    DLPI_STORE_REL(&tx->lane->tail, tx->tail); /* LT1 -> LT2 */
+    DLPI_STORE_REL(&tx->lane->tail, tx->tail);
+    if (tx->tail - tx->head_seen == tx->capacity) {
+        DLPI_STORE_REL(&tx->lane->tail, tx->tail - n);
+        DLPI_STORE_REL(&tx->lane->tail, tx->tail);
+    }
= head: wake word looked at before the store
-    DLPI_STORE_REL(&rx->lane->head, rx->head); /* LH1 -> LH2 */
-    DLPI_KEEP_ORDER();
-    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&rx->lane->producer_wake) != 0)) /* LB1 <- LB3 */
+    uint32_t rings = DLPI_LOAD_RLX(&rx->lane->producer_wake);
+    DLPI_STORE_REL(&rx->lane->head, rx->head);
+    DLPI_KEEP_ORDER();
+    if (rings != 0)
= head: wake word not looked at
-    if (DLPI_UNLIKELY(DLPI_LOAD_RLX(&rx->lane->producer_wake) != 0)) /* LB1 <- LB3 */
+    if (0)
= head: not published by who finds the lane empty
@ queue_spsc
-    if (stock == 0 && rx->published != rx->head)
+    if (0)
= head: published only by who finds the lane empty
-    if (DLPI_UNLIKELY(rx->head - rx->published >= rx->publish_every))
+    if (0)
= head: what it says is forgotten
-    rx->published = rx->head;
-    DLPI_STORE_REL
+    DLPI_STORE_REL
= room: one record too many
-    uint64_t room = tx->capacity - (tx->tail - tx->head_seen);
+    uint64_t room = tx->capacity + 1 - (tx->tail - tx->head_seen);
= room: full without a second look
-    return DLPI_LIKELY(room >= want) ? (int64_t)room : dlpi_spsc_look_tx(tx);
+    return DLPI_LIKELY(room >= want) ? (int64_t)room : (int64_t)(room + 0 * want);
= room: a counter out of range is believed
@ queue_spsc
-    if (DLPI_UNLIKELY(used > tx->capacity))
+    if (0)
= stock: a counter out of range is believed
@ queue_spsc
-    if (DLPI_UNLIKELY(stock > rx->capacity))
+    if (0)
= stock: counted as if counters did not wrap
-    uint64_t stock = tail - rx->head;
+    uint64_t stock = tail > rx->head ? tail - rx->head : 0;
= commit: all that was reserved
@ queue_spsc
-    tx->reserved = 0;
-    if (n > 0) dlpi_spsc_publish_tx(tx, n);
+    n = n > 0 ? tx->reserved : 0;
+    tx->reserved = 0;
+    if (n > 0)
+        dlpi_spsc_publish_tx(tx, n);
= wake word: taken without a wake-up
-        dlpi_futex_wake(wake_word, 1, ~0u, (int)shared);
+        (void)0;
= wake word: not cleared by who rings it
-    if (DLPI_AND_SEQ(wake_word, ~DLPI_WAKE_SLEEPER) & DLPI_WAKE_SLEEPER) /* LB2 <- LB3 */
+    if (DLPI_OR_SEQ(wake_word, 0u) & DLPI_WAKE_SLEEPER)
= wake word: cleared after the wake-up
-    if (DLPI_AND_SEQ(wake_word, ~DLPI_WAKE_SLEEPER) & DLPI_WAKE_SLEEPER) /* LB2 <- LB3 */
-        dlpi_futex_wake(wake_word, 1, ~0u, (int)shared);
+    if (DLPI_OR_SEQ(wake_word, 0u) & DLPI_WAKE_SLEEPER)
+        dlpi_futex_wake(wake_word, 1, ~0u, (int)shared);
+    DLPI_AND_SEQ(wake_word, ~DLPI_WAKE_SLEEPER);
= wake word: cleared with the mark that there is no barrier
-    if (DLPI_AND_SEQ(wake_word, ~DLPI_WAKE_SLEEPER) & DLPI_WAKE_SLEEPER) /* LB2 <- LB3 */
+    if (DLPI_XCHG_SEQ(wake_word, 0u) & DLPI_WAKE_SLEEPER)
= wake word: no mark where there is no barrier
-    if (!dlpi_heavy_register(shared))
+    if (0)
= room wake word: sleeper's bit read without a read-modify-write
-    if (!(DLPI_OR_SEQ(wake_word, 0u) & DLPI_WAKE_SLEEPER)) /* LB2 <- LB3 */
+    if (!(DLPI_LOAD_ACQ(wake word) & DLPI_WAKE_SLEEPER))
= room wake word: cleared before it is known whether to ring
-    if (!(DLPI_OR_SEQ(wake_word, 0u) & DLPI_WAKE_SLEEPER)) /* LB2 <- LB3 */
+    if (!(DLPI_AND_SEQ(wake_word, ~DLPI_WAKE_SLEEPER) & DLPI_WAKE_SLEEPER))
= room wake word: half of the ring and one more
-    if (used <= rx->capacity / 2 || used > rx->capacity)
+    if (used < rx->capacity / 2 || used > rx->capacity)
= sleep: no second look
-        int come = w->look(w->handle);
+        int come = 0;
= sleep: second look before the bit is set
-        uint32_t set = DLPI_OR_SEQ(w->wake_word, DLPI_WAKE_SLEEPER); /* LB3 -> LB1, LB2 */
+        int early = w->look(w->handle);
+        uint32_t set = DLPI_OR_SEQ(w->wake_word, DLPI_WAKE_SLEEPER);
-        int come = w->look(w->handle);
+        int come = early;
= sleep: no barrier
-        if (!(set & DLPI_WAKE_RMW) && !dlpi_heavy_barrier((int)w->shared)) {
+        if (0) {
= sleep: barrier after the second look
-        if (!(set & DLPI_WAKE_RMW) && !dlpi_heavy_barrier((int)w->shared)) {
+        int early = w->look(w->handle);
+        if (!(set & DLPI_WAKE_RMW) && !dlpi_heavy_barrier((int)w->shared)) {
-        int come = w->look(w->handle);
+        int come = early;
= sleep: bit set by load and store
-        uint32_t set = DLPI_OR_SEQ(w->wake_word, DLPI_WAKE_SLEEPER); /* LB3 -> LB1, LB2 */
+        uint32_t set = DLPI_LOAD_RLX(w->wake_word);
+        DLPI_STORE_SEQ(w->wake_word, set | DLPI_WAKE_SLEEPER);
= sleep: on whatever the wake word says by then
-        dlpi_futex_wait(w->wake_word, set, ~0u, most, (int)w->shared);
+        dlpi_futex_wait(w->wake_word, DLPI_LOAD_RLX(w->wake_word), ~0u, most, (int)w->shared);
= sleep: bit left on when there is something
-            DLPI_AND_SEQ(w->wake_word, ~DLPI_WAKE_SLEEPER); /* takes LB3 back */
-            return come ? DLP_OK : DLP_TIMEOUT;
+            return come ? DLP_OK : DLP_TIMEOUT;
= sleep: any end of it is taken for the event
-        if (w->look(w->handle)) { /* before the bit is set again, which would ask for a wake-up */
+        if (1) {
= producer sleeps on the consumer's wake word
-    dlpi_waiter w = {&tx->lane->producer_wake, tx->shared, tx->spin_ns, tx->yields,
+    dlpi_waiter w = {&tx->lane->consumer_wake, tx->shared, tx->spin_ns, tx->yields,
= attach: a producer begins at the consumer's counter
-    tx->tail = copy.tail;
+    tx->tail = copy.head;
= attach: a consumer begins at the producer's counter
-    rx->head = rx->published = copy.head;
+    rx->head = rx->published = copy.tail;
= attach: a producer of a bundle rings its lane's wake word
-    tx->lane.wake_word = &bundle->consumer_wake;
+    (void)bundle->consumer_wake;
= ready: said before the record is there
-    int r = dlp_spsc_try_push(&tx->lane, record);
-    dlpi_mpsc_say_ready(tx);
-    return r;
+    dlpi_mpsc_say_ready(tx);
+    return dlp_spsc_try_push(&tx->lane, record);
= ready: not said
-    if (tx->ready && !(DLPI_LOAD_RLX(tx->ready) & tx->ready_bit)) /* LR1 <- LR3 */
+    if (0)
= ready: said by load and store
-        DLPI_OR_SEQ(tx->ready, tx->ready_bit);                    /* LR2 -> LR3 */
+        DLPI_STORE_SEQ(tx->ready, DLPI_LOAD_RLX(tx->ready) | tx->ready_bit);
= search: bits alone, no sweep before empty is reported
-    return r == DLP_EMPTY ? dlpi_mpsc_sweep(rx) : r;
+    return r;
= search: no sweep while bits lead somewhere
@ queue_mpsc
-    if (++rx->finds % DLPI_MPSC_SWEEP != 0)
+    if (++rx->finds > 0)
= search: a lane that has more is not said to be ready
-    if (rx->left == 0 && rx->at->tail_seen != rx->at->head) /* its turn is over, but it has more */
+    if (0)
= search: the sweep leaves one lane out
-    for (uint32_t k = 0; k < rx->producers; k++) {
-        i = i + 1
+    for (uint32_t k = 1; k < rx->producers; k++) {
+        i = i + 1
= turn: never ends
@ queue_mpsc
-    rx->left = rx->quantum > 0 ? rx->quantum : 1;
+    rx->left = UINT32_MAX;
= claim: by load and store
-        if (DLPI_CAS_SEQ(&owners[i], &free_owner, 1u) &&               /* LO1 */
+        int is_free = DLPI_LOAD_SEQ(&owners[i]) == free_owner;
+        if (is_free) DLPI_STORE_SEQ(&owners[i], 1u);
+        if (is_free &&
= claim: a lane that is closed
-            DLPI_LOAD_RLX(&dlpi_mpsc_lane(mem, plan, i)->closed) == 0) /* LE1, before its LO1 */
+            1)
= close: nobody is woken
-    if (DLPI_LOAD_RLX(tx->wake_word) != 0) /* LB1 <- LB3 */
+    if (0)
= close: wake word looked at before the store
-    DLPI_STORE_REL(&tx->lane->closed, tx->closed); /* LE1 -> LE2, after the last LT1 */
-    DLPI_KEEP_ORDER();
-    if (DLPI_LOAD_RLX(tx->wake_word) != 0) /* LB1 <- LB3 */
+    uint32_t rings = DLPI_LOAD_RLX(tx->wake_word);
+    DLPI_STORE_REL(&tx->lane->closed, tx->closed);
+    DLPI_KEEP_ORDER();
+    if (rings != 0)
= close: looked at behind the tail
-    uint32_t closed = DLPI_LOAD_ACQ(&rx->lane->closed); /* LE2 <- LE1, before LT2 */
-    uint64_t tail = DLPI_LOAD_ACQ(&rx->lane->tail);     /* LT2 <- LT1 */
+    uint64_t tail = DLPI_LOAD_ACQ(&rx->lane->tail);
+    uint32_t closed = DLPI_LOAD_ACQ(&rx->lane->closed);
= close: of one lane ends the bundle
-    return ended == rx->producers ? DLP_END : DLP_EMPTY;
+    return ended > 0 ? DLP_END : DLP_EMPTY;
= close: pushes go on
@ queue_spsc
-    if (DLPI_UNLIKELY(tx->closed)) return DLP_ERR_STATE;
+    (void)0;
= claim: never given back
-DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx) { DLPI_STORE_SEQ(tx->owner, 0u); /* LO1 */
+DLPDEF void dlp_mpsc_detach_tx(dlp_mpsc_tx *tx) { (void)tx;
MUTANTS
}

# The header without what follows the queues, so that it compiles quickly.
cut_header() {
    awk '
    { line[NR] = $0 }
    /^#define DLPIPE_IMPLEMENTATION_DONE/ { inside = 1 }
    inside && />>impl-order / { from = NR - 1 }
    /^#endif \/\* DLPIPE_IMPLEMENTATION \*\// { to = NR }
    END {
        if (!from || !to) exit 1
        for (i = 1; i <= NR; i++) if (i < from || i >= to) print line[i]
    }' dlpipe.h
}

limited() { # seconds command...
    if command -v timeout >/dev/null 2>&1; then timeout -k 1 "$@"; else shift; "$@"; fi
}

argument() { # the checker's short form; a unit test's seed
    case $1 in model) echo quick ;; *) echo 1 ;; esac
}

beside() { # DIR: the test programs, beside the header that lies there
    mkdir -p "$1/tests" && cp -r tests/unit tests/model tests/rig "$1/tests"
}

# Who notices mutant $1? One line into $out/$1.result: what, or nothing.
try_mutant() {
    dir=$out/$1
    mkdir -p "$dir"
    : >"$out/$1.result"
    if ! mutate "$out/list" "$1" "$out/dlpipe.h" >"$dir/dlpipe.h"; then
        echo 'NO LONGER APPLIES' >"$out/$1.result"
        return
    fi
    hint=$(awk -v n="$1" '/^=/ { k++ } /^@/ && k == n { print $2 }' "$out/list")
    for unit in ${hint:-model $units}; do
        beside "$dir" || return
        # shellcheck disable=SC2046,SC2086
        "$cc" $flags -o "$dir/$unit" $(find "$dir/tests" -name $unit.c) -lpthread -lm \
            >"$dir/$unit.log" 2>&1
        if [ ! -x "$dir/$unit" ]; then
            echo "DOES NOT COMPILE: $(grep -m 1 error "$dir/$unit.log")" >"$out/$1.result"
            return
        fi
        limited 20 "$dir/$unit" "$(argument $unit)" >"$dir/$unit.log" 2>&1
        code=$?
        [ $code -eq 0 ] && continue
        [ $code -eq 78 ] && continue
        if [ $unit = model ] && [ $code -eq 1 ]; then
            sed -n 's/^caught by \([^:]*\):.*/model: \1/p' "$dir/$unit.log" >"$out/$1.result"
        elif [ $code -eq 1 ]; then
            echo "$unit: $(sed -n 's/: line .*//p;q' "$dir/$unit.log")" >"$out/$1.result"
        else
            echo "$unit: ends with code $code" >"$out/$1.result"
        fi
        [ -n "${only:-}" ] && cat "$dir/$unit.log"
        return
    done
}

mkdir -p "$out"
rm -rf "$out"/[0-9]*
mutants >"$out/list"
count=$(grep -c '^= ' "$out/list")
cut_header >"$out/dlpipe.h" || { echo 'dlpipe.h has no queues to cut out'; exit 1; }

only=${1:-}
if [ -n "$only" ]; then
    try_mutant "$only"
    sed -n 's/^= //p' "$out/list" | sed -n "${only}p"
    cat "$out/$only.result"
    exit
fi

# The header as it is must pass, or all of this means nothing.
mkdir -p "$out/0"
cp "$out/dlpipe.h" "$out/0"
for unit in model $units; do
    beside "$out/0" || exit 1
    # shellcheck disable=SC2046,SC2086
    "$cc" $flags -O1 -o "$out/0/$unit" $(find "$out/0/tests" -name $unit.c) -lpthread -lm || exit 1
    limited 100 "$out/0/$unit" "$(argument $unit)" >"$out/0/$unit.log" 2>&1
    code=$?
    if [ $code -eq 78 ]; then
        tail -n 1 "$out/0/$unit.log"
        exit 78
    fi
    [ $code -eq 0 ] || { echo "$unit fails without any mutant"; tail "$out/0/$unit.log"; exit 1; }
done

step=20
[ -n "${SOAK:-}" ] && step=1
worker() {
    i=$1
    while [ "$i" -le "$count" ]; do
        try_mutant "$i"
        rm -rf "${out:?}/$i"
        i=$((i + 2 * step))
    done
}
"$out/0/model" weaken >"$out/weaken.log" 2>&1 &
weakening=$!
worker 1 &
worker $((1 + step)) &
wait $weakening
weakened=$?
wait

bad=0
cat "$out/weaken.log"
[ $weakened -eq 0 ] || bad=1
i=1
while [ $i -le "$count" ]; do
    result=$(cat "$out/$i.result")
    case $result in
    '' | NO* | DOES*) bad=$((bad + 1)) result=${result:-NOT CAUGHT} ;;
    esac
    printf '%2d %-62s %s\n' $i "$(sed -n 's/^= //p' "$out/list" | sed -n ${i}p)" "$result"
    i=$((i + step))
done
echo "$(((count + step - 1) / step)) of $count mutants, $bad not caught"
[ $bad -eq 0 ]
