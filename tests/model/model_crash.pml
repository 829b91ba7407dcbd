/* Claims, completion, closing and the recovery after a crash (dlpipe.h, >>impl-region), where any
   worker may die before any of its steps: at work, asleep, just replaced, while another is buried.

   A caller, who feeds too, publishes N batches into 2 slots that go round, delivers them in order
   and looks at each; W workers look, claim, run, complete and close; a supervisor recovers after a
   death is proved, step by step, while everybody else goes on; then the dead one is replaced. A
   step (a d_step) is one access of a shared word; what is read with it cannot change in between.
   Memory is sequentially consistent: orders are the business of tests/model/model.c, which runs the
   header's own code.

   Checked in every state
     each batch is delivered once, all its rows run by every stage, each on complete input;
     nobody writes to a slot that is ready, held or another batch's, to a row where another worker
     is, or to an item cell that was given to another batch;
     every run comes to its end: a worker that found nothing waits for news, of which there is only
     so much, and no state without a next one is valid before all is delivered.

   The pipe: K stages, the first NI on items; the batch stages behind them change the batch in
   place, but for a collate, the first of them with STAGED, which reads item cells and writes the
   slot. Each stage has a worker; if there are more, they are the first stage's, or with CROWD_LAST
   the last's.
     ROWS in units of RPU, in WORDS done words; rows of a unit are completed one by one, as parked
     rows are
     DEATHS, FAILS   so many at most; MORTAL: who may die, a bit for each. A row that fails behind
                     the first stage, or a batch in an in-place map, goes back as after a death
     SLEEPS          workers, caller sleep by wake words (mask, word, futex) that have no time-out;
                     else each publication is news to everybody
   tests/model/model_crash.sh has the sizes, and the mutants: each is one of the switches below.
   Not modelled: row records, padding, batches without rows (nobody closes them).
   Found not to matter: whether the claims of a unit are given up backwards or forwards
   (FREE_FORWARDS), since all is taken back before and everybody looks again after. */

#ifndef N
#define N 3
#endif
#ifndef K
#define K 1
#endif
#ifndef NI
#define NI 1
#endif
#ifndef W
#define W 2
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef RPU
#define RPU 1
#endif
#ifndef WORDS
#define WORDS 1
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef MORTAL
#define MORTAL 7
#endif
#define UNITS (ROWS / RPU)
#define SLOTS 2

#ifdef CROWD_LAST
#define STAGE(g) ((g) < K - 1 -> (g) : K - 1)
#else
#define STAGE(g) ((g) <= W - K -> 0 : (g) - (W - K))
#endif

/* Generations are batch + 1, so that 0 is older than all. Words:
     own    generation * 16 | worker + 1, or 8 + number when freed
     done   generation * 4 | bits
     ready  redo count * 8 | generation
     next   generation * 4 | unit
     scan   generation * 64 | redo count * 4 | word   (of the last item stage) */
#define GEN_OWN(x) ((x) >> 4)
#define GEN_DONE(x) ((x) >> 2)
#define LOW(x) ((x) & 7)
#define OWN(s, k, u) own[((s) * K + (k)) * UNITS + (u)]
#define DONE(s, k, i) done[((s) * K + (k)) * WORDS + (i)]
#define READY(s, k) ready[(s) * K + (k)]
#define NEXT(s, k) next[(s) * K + (k)]
#if WORDS == 1
#define WORD_OF(row) 0
#define BIT_OF(row) (1 << (row))
#define FULL ((1 << ROWS) - 1)
#else
#define WORD_OF(row) (row)
#define BIT_OF(row) 1
#define FULL 1
#endif
#if RPU == 1
#define MASK_OF(u) BIT_OF(u)
#else
#define MASK_OF(u) FULL
#endif
#define N_UNITS(k) ((k) < NI -> UNITS : 1)

/* The stage that a unit of stage q goes back to: the nearest that writes it whole. */
#if defined(IN_PLACE_AGAIN)
#define FIRST(q) (q)
#elif defined(STAGED)
#define FIRST(q) (((q) >= NI) * NI)
#else
#define FIRST(q) 0
#endif

byte tail, delivered;
byte pub[SLOTS];
bit used[SLOTS];
byte own[SLOTS * K * UNITS], done[SLOTS * K * WORDS], ready[SLOTS * K], next[SLOTS * K];
short scan[SLOTS];
byte frees[SLOTS];
bit bumped[K]; /* a stage's rewind was */
bit over;
byte deaths, fails;

/* What lies in a row, and in the batch behind a collate: generation * 8 + stages that ran, or
   DIRTY; and who writes there, + 1. Item cells are the slots' own, or (STAGED) the feeder's. */
#define DIRTY 0
#define VALUE(gen, stages) ((gen) * 8 + (stages))
byte row_is[SLOTS * ROWS], row_by[SLOTS * ROWS];
byte batch_is[SLOTS], batch_by[SLOTS];
byte cell[SLOTS];  /* of the batch in the slot */
byte given[SLOTS]; /* generation of the batch that has the cell, as the feeder keeps it */
bit cell_used[SLOTS];
#ifdef STAGED
#define CELL(s) cell[s]
#else
#define CELL(s) (s)
#endif
#define ROW_IS(s, r) row_is[CELL(s) * ROWS + (r)]
#define ROW_BY(s, r) row_by[CELL(s) * ROWS + (r)]

/* A worker's next step, and what it alone knows. */
mtype = { LOOK, LOOK_TAIL, LOOK_BATCH, LOOK_UNIT, LOOK_INPUT, CLAIM, HINT, ROW_BEGIN, ROW_DONE,
          PASS, PASS_REWIND, CLOSE, SCAN, SCAN_WORD, SCAN_HINT, CLOSE_READY, ROW_NEXT,
          BACK_OWN, BACK_BITS, BACK_READY, BACK_NUMBER, BACK_FREE, BACK_REWIND,
          BATCH_BEGIN, BATCH_END, BATCH_READY, BATCH_OVER,
          SLEEP_WORD, SLEEP_BIT, SLEEP_WAIT, SLEEP_UP, SLEEP_FOUND, RUN,
          RING, RING_TAKE, RING_WAKE, CALL, CALL_TAKE, CALL_WAKE, DEAD,
          /* the supervisor's */
          REST, AT_SLOT, AT_OWN, AT_DONE, AT_READY, AT_OWN_AGAIN, AT_NUMBER,
          TAKE_BITS, TAKE_READY, FREE, FREED,
          AT_CLOSE, AT_SCAN, AT_WORD, AT_HINT, AT_CLOSE_READY, REWIND, UNSLEEP, WAKE, WAKE_CALLER,
          REPLACE };
typedef one {
    mtype pc, then;       /* then: behind a ring */
    byte low;             /* every batch below has no unit to claim */
    byte b, s, u, from, x, r, i;
    bit hints, all, sleepy;
    bit news;             /* something was published since it began to look */
    bit rewound;          /* the stage's rewind differs from rewind_seen */
    bit rewound_now;      /* and from what it read when it began to look */
    bit stale, asleep;    /* the wake word's word changed since it read it; in the futex */
    byte ringing;
};
one w[W];

inline to_each_news() {
    w[0].news = 1;
#if W > 1
    w[1].news = 1;
#endif
#if W > 2
    w[2].news = 1;
#endif
    skip
}
#ifdef SLEEPS
#define NEWS skip
byte mask[K];
bit want, caller_asleep, caller_stale;
#else
#define NEWS to_each_news()
#endif

inline rewind_of(g_, k_) {
    if
    :: STAGE(g_) == (k_) -> w[g_].rewound = 1; w[g_].rewound_now = 1
    :: else
    fi
}
inline rewind(k_) { /* R1 */
    bumped[k_] = 1;
    rewind_of(0, k_);
#if W > 1
    rewind_of(1, k_);
#endif
#if W > 2
    rewind_of(2, k_);
#endif
    NEWS
}

#ifdef SLEEPS
inline bump_of(g_, k_, bits_) {
    if
    :: STAGE(g_) == (k_) ->
        w[g_].stale = 1;
        if :: ((bits_) >> g_) & 1 -> w[g_].asleep = 0 :: else fi
    :: else
    fi
}
inline bump_wake(k_, bits_) { /* change the wake word's word, wake these sleepers */
    bump_of(0, k_, bits_);
    bump_of(1, k_, bits_);
#if W > 2
    bump_of(2, k_, bits_);
#endif
    skip
}
#endif

/* ---- what must hold of writes ---- */

#define OPEN(s, gen) (pub[s] == gen && used[s] && LOW(READY(s, K - 1)) < gen)
#ifdef STAGED
#define CELL_HELD(s, gen) (given[cell[s]] == gen)
#else
#define CELL_HELD(s, gen) true
#endif

inline rows_hold(s_, value_) {
    assert(ROW_IS(s_, 0) == (value_) && ROW_BY(s_, 0) == 0);
    assert(ROW_IS(s_, ROWS - 1) == (value_) && ROW_BY(s_, ROWS - 1) == 0)
}

inline rows_become(s_, value_, by_) {
    ROW_IS(s_, 0) = value_;
    ROW_BY(s_, 0) = by_;
    ROW_IS(s_, ROWS - 1) = value_;
    ROW_BY(s_, ROWS - 1) = by_
}

inline row_begin(s_, r_, gen_, k_, by_) {
    assert(OPEN(s_, gen_) && CELL_HELD(s_, gen_));
    assert(ROW_BY(s_, r_) == 0);
    assert(k_ == 0 || ROW_IS(s_, r_) == VALUE(gen_, k_));
    ROW_IS(s_, r_) = DIRTY;
    ROW_BY(s_, r_) = by_
}

inline row_end(s_, r_, gen_, k_, by_) {
    assert(OPEN(s_, gen_) && CELL_HELD(s_, gen_));
    assert(ROW_BY(s_, r_) == by_ && ROW_IS(s_, r_) == DIRTY);
    ROW_IS(s_, r_) = VALUE(gen_, k_ + 1);
    ROW_BY(s_, r_) = 0
}

inline batch_begin(s_, gen_, k_, by_) {
    assert(OPEN(s_, gen_));
#ifdef STAGED
    assert(batch_by[s_] == 0);
    if
    :: k_ == NI -> assert(CELL_HELD(s_, gen_)); rows_hold(s_, VALUE(gen_, NI))
    :: else -> assert(batch_is[s_] == VALUE(gen_, k_))
    fi;
    batch_is[s_] = DIRTY;
    batch_by[s_] = by_
#else
    rows_hold(s_, VALUE(gen_, k_));
    rows_become(s_, DIRTY, by_)
#endif
}

inline batch_end(s_, gen_, k_, by_) {
    assert(OPEN(s_, gen_));
#ifdef STAGED
    if
    :: k_ == NI -> assert(CELL_HELD(s_, gen_)); rows_hold(s_, VALUE(gen_, NI))
    :: else
    fi;
    assert(batch_is[s_] == DIRTY && batch_by[s_] == by_);
    batch_is[s_] = VALUE(gen_, k_ + 1);
    batch_by[s_] = 0
#else
    assert(ROW_IS(s_, 0) == DIRTY && ROW_BY(s_, 0) == by_);
    rows_become(s_, VALUE(gen_, k_ + 1), 0)
#endif
}

inline batch_let_go(s_) { /* half changed */
#ifdef STAGED
    batch_by[s_] = 0
#else
    ROW_BY(s_, 0) = 0;
    ROW_BY(s_, ROWS - 1) = 0
#endif
}

inline batch_holds(s_, gen_) {
#ifdef STAGED
    assert(batch_is[s_] == VALUE(gen_, K) && batch_by[s_] == 0)
#else
    rows_hold(s_, VALUE(gen_, K))
#endif
}

/* ---- the caller ---- */

/* May a cell be given to another batch? */
#define CELL_LEFT(c, k) (given[c] == 0 || LOW(READY((given[c] - 1) % SLOTS, k)) >= given[c])
#if defined(CELL_FREED_BY_WORD)
#define CELL_FREE(c) (!cell_used[c])
#elif defined(CELL_FREED_BY_COLLATE)
#define CELL_FREE(c) CELL_LEFT(c, NI)
#else /* the last batch stage ends their use: who dies in one goes back to the collate */
#define CELL_FREE(c) CELL_LEFT(c, K - 1)
#endif

#define MAY_FEED (tail < N && tail < delivered + SLOTS && !used[tail % SLOTS])
#define MAY_TAKE (delivered < tail && LOW(READY(delivered % SLOTS, K - 1)) == delivered + 1)
#ifdef SLEEPS
#define CALLER_LOOKS (!want)
#else
#define CALLER_LOOKS true
#endif

proctype caller() {
    byte c;
    do
    :: d_step { MAY_FEED ->
#ifdef STAGED
            c = (CELL_FREE(0) -> 0 : 1);
            assert(CELL_FREE(c));
            cell[tail % SLOTS] = c;
            given[c] = tail + 1;
            cell_used[c] = 1;
            c = 0;
#endif
            used[tail % SLOTS] = 1;
            pub[tail % SLOTS] = tail + 1; /* P1: what was set before nobody reads till now */
        }
        d_step { tail++; NEWS } /* T1 */
#ifdef SLEEPS
        d_step { c = mask[0]; c = c & (0 - c) } /* B1 */
        if
        :: c ->
            d_step { c = c & mask[0]; mask[0] = mask[0] & ~c }
            if :: c -> d_step { bump_wake(0, c) } :: else fi;
            c = 0
        :: else
        fi
#endif
    :: d_step { MAY_TAKE -> /* Y1 */
            assert(used[delivered % SLOTS] && pub[delivered % SLOTS] == delivered + 1);
            batch_holds(delivered % SLOTS, delivered + 1);
            delivered++
        }
        d_step { /* held until now */
            c = (delivered - 1) % SLOTS;
            batch_holds(c, delivered);
            used[c] = 0; /* C1 */
            c = 0
        }
        if
        :: delivered == N -> break
        :: else
        fi
#ifdef SLEEPS
    :: d_step { !MAY_FEED && !MAY_TAKE -> caller_stale = 0; want = 1 } /* B1 */
        if
        :: MAY_TAKE -> want = 0
        :: d_step { !MAY_TAKE -> caller_asleep = !caller_stale } /* the futex compares */
            d_step { !caller_asleep -> want = 0 }
        fi
#endif
    od;
    over = 1
}

/* ---- workers ---- */

#define me w[g]

inline forget() {
    me.b = 0; me.s = 0; me.u = 0; me.from = 0; me.x = 0; me.r = 0; me.i = 0; me.all = 0
}

inline go_look() { forget(); me.news = 1; me.pc = LOOK }

inline ring(k_, then_) {
#ifdef SLEEPS
    me.ringing = k_;
    me.pc = ((k_) < K -> RING : CALL);
    me.then = then_
#else
    me.pc = then_
#endif
}

inline next_unit() {
    me.u++;
    me.x = 0;
    me.r = 0;
    if
    :: me.u < N_UNITS(k) -> me.pc = LOOK_UNIT
    :: else ->
        if :: me.all && me.b == me.low -> me.low++ :: else fi;
        me.b++;
        me.pc = LOOK_BATCH
    fi
}

inline found_nothing() {
    me.rewound = me.rewound_now; /* only now: after a whole look */
#ifdef SLEEPS
    me.pc = (me.sleepy -> SLEEP_WAIT : SLEEP_WORD)
#else
    me.pc = LOOK
#endif
    ;forget()
}

inline run_unit() {
    me.x = 0;
    me.r = 0;
    if
    :: k < NI -> me.from = me.u * RPU; me.pc = ROW_BEGIN
    :: else -> me.from = 0; me.pc = BATCH_BEGIN
    fi;
#ifdef SLEEPS
    if
    :: me.sleepy -> me.pc = SLEEP_FOUND
    :: else -> assert((mask[k] >> g & 1) == 0) /* a set bit says: I can take work */
    fi;
#endif
    skip
}

inline next_row() {
    me.x = 0;
    me.r = 0;
    me.i = 0;
    me.from++;
    if
    :: me.from < (me.u + 1) * RPU -> me.pc = ROW_BEGIN
    :: else -> go_look()
    fi
}

inline full_word(s_, gen_, i_, x_) { /* D1; goes behind a full word, where a hint may have led */
    if
    :: i_ == WORDS -> x_ = 1
    :: else ->
        x_ = (DONE(s_, NI - 1, i_) == (gen_) * 4 + FULL);
        if :: x_ -> i_++ :: else fi
    fi
}

inline scan_begin(s_, gen_, count_, i_) { /* D2 */
    i_ = 0;
#ifdef SCAN_WITHOUT_COUNT
    if :: scan[s_] >> 6 == (gen_) -> i_ = scan[s_] & 3 :: else fi;
#else
    if :: scan[s_] >> 2 == (gen_) * 16 + (count_) -> i_ = scan[s_] & 3 :: else fi;
#endif
    skip
}

#ifdef CLOSE_READS_READY_LATE
#define CLOSE_SEEN if :: LOW(READY(me.s, k)) <= me.b -> me.r = READY(me.s, k) :: else fi
#else
#define CLOSE_SEEN skip
#endif

#ifdef PASS_WITHOUT_REWIND
#define PASS_REWINDS false
#else
#define PASS_REWINDS true
#endif
#define NEXT_STAGE (k + 1 - (k + 1 == K)) /* for the compiler: the last has none */
#define OVER (k < NI -> ROW_NEXT : BATCH_OVER)

/* Going back: bits x of the unit's word, or all of the batch. me.r is the stage, me.i the unit or
   word. Parts that have nothing to do are left out, as in the recovery. */
#define BACK_UNIT ((k < NI) * me.u + (k >= NI) * me.i)
#define BACK_WORD ((k < NI) * WORD_OF(me.from) + (k >= NI) * me.i)
#ifdef READY_BEFORE_BITS
#define BACK_AFTER_OWN BACK_READY
#define BACK_AFTER_BITS BACK_NUMBER
#define BACK_AFTER_READY BACK_BITS
#else
#define BACK_AFTER_OWN BACK_BITS
#define BACK_AFTER_BITS BACK_READY
#define BACK_AFTER_READY BACK_NUMBER
#endif

inline back_part(part_) {
    me.pc = part_;
    me.i = 0;
    me.r = FIRST(k);
    if :: me.pc == BACK_BITS && me.r >= NI -> me.pc = BACK_AFTER_BITS :: else fi;
    if :: me.pc == BACK_READY && me.r < NI - 1 -> me.r = NI - 1 :: else fi;
    if
    :: me.pc == BACK_READY && me.r >= k -> me.pc = BACK_AFTER_READY; me.r = FIRST(k)
    :: else
    fi
}

inline back_step() {
    if :: k < NI -> me.i = 8 :: else -> me.i++ fi;
    if
    :: me.pc == BACK_OWN && me.i >= N_UNITS(me.r) -> me.r++; me.i = 0;
        if :: me.r >= k -> back_part(BACK_AFTER_OWN) :: else fi
    :: me.pc == BACK_BITS && me.i >= WORDS -> me.r++; me.i = 0;
        if :: me.r >= k || me.r >= NI -> back_part(BACK_AFTER_BITS) :: else fi
    :: me.pc == BACK_READY -> me.r++; me.i = 0;
        if :: me.r >= k -> back_part(BACK_AFTER_READY) :: else fi
    :: else
    fi
}

inline go_back(bits_) {
    fails++;
    me.x = bits_;
#if defined(BACK_WITHOUT_OWNING)
    back_part(BACK_AFTER_OWN)
#else
    back_part(BACK_OWN)
#endif
}

inline pass_on() {
    if
    :: k + 1 < K -> me.pc = PASS
    :: else -> ring(k + 1, OVER)
    fi
}

proctype worker(byte g) {
    byte k;
    k = STAGE(g);
    do
    /* dlpi_find */
    :: d_step { me.pc == LOOK && me.news -> /* R1 */
            me.news = 0;
            me.rewound_now = 0;
            me.hints = !me.rewound;
            me.pc = LOOK_TAIL
        }
    :: d_step { me.pc == LOOK_TAIL -> /* T1 */
            if
            :: !me.hints || tail > me.low + SLOTS -> me.low = (tail > SLOTS -> tail - SLOTS : 0)
            :: else
            fi;
            me.b = me.low;
            me.pc = LOOK_BATCH
        }
    :: d_step { me.pc == LOOK_BATCH -> /* T1; P1: what the tail says is published, is */
            me.all = 1;
            if
            :: me.b >= tail -> found_nothing()
            :: else ->
                me.s = me.b % SLOTS;
                me.u = 0;
                if
                :: pub[me.s] != me.b + 1 -> me.u = N_UNITS(k) /* the slot went on */
                :: else ->
                    if
                    :: me.hints && NEXT(me.s, k) >> 2 == me.b + 1 -> me.u = NEXT(me.s, k) & 3
                    :: else
                    fi
                fi;
                me.from = me.u;
                if
                :: me.u >= N_UNITS(k) -> next_unit()
                :: else -> me.pc = LOOK_UNIT
                fi
            fi
        }
    :: d_step { me.pc == LOOK_UNIT -> /* O1 */
            me.r = OWN(me.s, k, me.u);
            if
            :: GEN_OWN(me.r) > me.b -> if :: me.u == me.from -> me.from++ :: else fi; next_unit()
            :: else -> me.pc = (k == 0 -> CLAIM : LOOK_INPUT)
            fi
        }
    :: d_step { me.pc == LOOK_INPUT ->
            /* rows that this stage did need no input; only the unit's owner adds to them */
            if
            :: k >= NI -> me.x = (LOW(READY(me.s, k - 1)) == me.b + 1) /* Y1 */
            :: else ->
                me.i = DONE(me.s, k - 1, WORD_OF(me.u * RPU)); /* D1 */
                me.x = (GEN_DONE(me.i) == me.b + 1 -> me.i & 3 : 0);
                me.i = DONE(me.s, k, WORD_OF(me.u * RPU)); /* D1 */
                me.x = me.x | (GEN_DONE(me.i) == me.b + 1 -> me.i & 3 : 0);
                me.x = ((me.x & MASK_OF(me.u)) == MASK_OF(me.u));
                me.i = 0
            fi;
            if
            :: me.x -> me.x = 0; me.pc = CLAIM
            :: else -> me.all = 0; next_unit()
            fi
        }
    :: d_step { me.pc == CLAIM -> /* O1 */
            if
            :: OWN(me.s, k, me.u) == me.r ->
                OWN(me.s, k, me.u) = (me.b + 1) * 16 + g + 1;
                me.all = 0;
                me.hints = 0;
                if :: me.u == me.from -> me.pc = HINT :: else -> run_unit() fi
            :: else -> me.all = 0; next_unit()
            fi
        }
    :: d_step { me.pc == HINT -> NEXT(me.s, k) = (me.b + 1) * 4 + me.u + 1; run_unit() }
    /* dlpi_unit_items; me.from is the row */
    :: d_step { me.pc == ROW_BEGIN ->
            me.i = DONE(me.s, k, WORD_OF(me.from)); /* D1: the unit's bits are its owner's */
            if
            :: GEN_DONE(me.i) == me.b + 1 && (me.i & BIT_OF(me.from)) -> next_row()
            :: else ->
                row_begin(me.s, me.from, me.b + 1, k, g + 1);
                me.i = 0;
                me.pc = ROW_DONE
            fi
        }
#if FAILS > 0
    :: d_step { me.pc == ROW_DONE && k > 0 && fails < FAILS ->
            ROW_BY(me.s, me.from) = 0;
            go_back(BIT_OF(me.from))
        }
#endif
    :: d_step { me.pc == ROW_DONE -> /* D1; a row written but not done is as one half written */
            row_end(me.s, me.from, me.b + 1, k, g + 1);
            me.x = DONE(me.s, k, WORD_OF(me.from));
            me.x = (GEN_DONE(me.x) == me.b + 1 -> me.x & 3 : 0) | BIT_OF(me.from);
            DONE(me.s, k, WORD_OF(me.from)) = (me.b + 1) * 4 + me.x;
            NEWS;
            if
            :: k + 1 < NI && (me.x & MASK_OF(me.u)) == MASK_OF(me.u) -> me.pc = PASS
            :: k + 1 == NI && me.x == FULL -> me.pc = CLOSE
            :: else -> next_row()
            fi;
            me.x = 0
        }
    /* dlpi_pass_items, dlpi_ready_wake: who looked for a unit freed again in the next stage may
       have done so before its input was back, and goes by hints since */
#if K > 1
    :: d_step { me.pc == PASS -> /* O1 */
            me.r = OWN(me.s, NEXT_STAGE, me.u * (NEXT_STAGE < NI));
            if
            :: GEN_OWN(me.r) == me.b && (me.r & 8) && PASS_REWINDS -> me.pc = PASS_REWIND
            :: else -> ring(k + 1, OVER)
            fi;
            me.r = 0
        }
    :: d_step { me.pc == PASS_REWIND -> rewind(NEXT_STAGE); ring(k + 1, OVER) } /* R1 */
#endif
    /* dlpi_complete */
    :: d_step { me.pc == CLOSE -> /* Y1 */
            me.r = READY(me.s, k);
            me.pc = SCAN;
            if :: LOW(me.r) > me.b -> next_row() :: else fi;
#if WORDS == 1
            if :: me.pc == SCAN -> me.pc = SCAN_WORD :: else fi;
#endif
            skip
        }
    :: d_step { me.pc == SCAN -> scan_begin(me.s, me.b + 1, me.r >> 3, me.i); me.pc = SCAN_WORD }
    :: d_step { me.pc == SCAN_WORD ->
            full_word(me.s, me.b + 1, me.i, me.x);
            if
            :: me.x && me.i < WORDS
            :: (!me.x || me.i == WORDS) && WORDS > 1 -> me.pc = SCAN_HINT
            :: me.x && WORDS == 1 -> me.pc = CLOSE_READY
            :: else -> next_row()
            fi
        }
#if WORDS > 1
    :: d_step { me.pc == SCAN_HINT -> /* D2 */
            scan[me.s] = (me.b + 1) * 64 + (me.r >> 3) * 4 + me.i;
            if
            :: me.x -> me.pc = CLOSE_READY
            :: else -> next_row()
            fi
        }
#endif
    :: d_step { me.pc == CLOSE_READY -> /* Y1 */
            CLOSE_SEEN;
            me.i = 0;
            me.x = 0;
            if
            :: READY(me.s, k) == me.r ->
                READY(me.s, k) = (me.r >> 3) * 8 + me.b + 1;
                NEWS;
                pass_on()
            :: else -> next_row()
            fi
        }
    :: d_step { me.pc == ROW_NEXT -> next_row() }
#if FAILS > 0
    /* dlpi_rows_redo: the units of the stages before become ours first. So a death
       on the way leaves a trace, and who buries their last owner sees that they are taken. */
    :: d_step { me.pc == BACK_OWN -> /* O1 */
            OWN(me.s, me.r, BACK_UNIT) = (me.b + 1) * 16 + g + 1;
            back_step()
        }
    :: d_step { me.pc == BACK_BITS -> /* D1 */
            DONE(me.s, me.r, BACK_WORD) = DONE(me.s, me.r, BACK_WORD) & ~me.x;
            NEWS;
            back_step()
        }
    :: d_step { me.pc == BACK_READY -> /* Y1 */
            READY(me.s, me.r) = (READY(me.s, me.r) >> 3) * 8 + 8 + me.b;
            NEWS;
            back_step()
        }
    :: d_step { me.pc == BACK_NUMBER -> /* O1 */
            me.x = frees[me.s];
#ifndef FREED_ALIKE
            frees[me.s]++;
#endif
            me.r = k;
            me.i = 0;
            me.pc = BACK_FREE
        }
    :: d_step { me.pc == BACK_FREE -> /* O1; from this stage backwards */
            OWN(me.s, me.r, BACK_UNIT) = me.b * 16 + 8 + me.x;
            NEWS;
            if :: k < NI -> me.i = UNITS :: else -> me.i++ fi;
            if
            :: me.i < N_UNITS(me.r)
            :: me.i >= N_UNITS(me.r) && me.r > FIRST(k) -> me.i = 0; me.r--
            :: else -> me.r = FIRST(k); me.pc = BACK_REWIND
            fi
        }
    :: d_step { me.pc == BACK_REWIND -> /* R1 */
            rewind(me.r);
            me.r++;
            if :: me.r > k -> go_look() :: else fi
        }
#endif
    /* dlpi_batches_run */
#if NI < K
    :: d_step { me.pc == BATCH_BEGIN -> batch_begin(me.s, me.b + 1, k, g + 1); me.pc = BATCH_END }
#if FAILS > 0
    :: d_step { me.pc == BATCH_END && FIRST(k) < k && fails < FAILS ->
            batch_let_go(me.s);
            go_back(FULL)
        }
#endif
    :: d_step { me.pc == BATCH_END ->
            batch_end(me.s, me.b + 1, k, g + 1);
            if :: k == NI -> cell_used[cell[me.s]] = 0 :: else fi;
            me.pc = BATCH_READY
        }
    :: d_step { me.pc == BATCH_READY -> /* Y1 */
            READY(me.s, k) = (READY(me.s, k) >> 3) * 8 + me.b + 1;
            NEWS;
            pass_on()
        }
    :: d_step { me.pc == BATCH_OVER -> go_look() }
#endif
#ifdef SLEEPS
    /* dlpi_wait_once, of a worker */
    :: d_step { me.pc == SLEEP_WORD -> me.stale = 0; me.pc = SLEEP_BIT } /* B1 */
    :: d_step { me.pc == SLEEP_BIT -> mask[k] = mask[k] | 1 << g; me.sleepy = 1; go_look() }
    :: d_step { me.pc == SLEEP_WAIT -> me.asleep = !me.stale; me.pc = SLEEP_UP } /* it compares */
    :: d_step { me.pc == SLEEP_UP && !me.asleep ->
            mask[k] = mask[k] & ~(1 << g);
            me.sleepy = 0;
            go_look()
        }
    :: d_step { me.pc == SLEEP_FOUND -> /* B1 */
            me.sleepy = 0;
            me.x = mask[k] >> g & 1;
            mask[k] = mask[k] & ~(1 << g);
            if
            :: me.x -> run_unit()
            :: else -> ring(k, RUN) /* passed on */
            fi
        }
    :: d_step { me.pc == RUN -> run_unit() }
    /* dlpi_ring, for one sleeper */
    :: d_step { me.pc == RING -> /* B1 */
            me.x = mask[me.ringing];
            me.x = me.x & (0 - me.x);
            me.pc = (me.x -> RING_TAKE : me.then)
        }
    :: d_step { me.pc == RING_TAKE -> /* B1 */
            me.x = me.x & mask[me.ringing];
            mask[me.ringing] = mask[me.ringing] & ~me.x;
            me.pc = (me.x -> RING_WAKE : me.then)
        }
    :: d_step { me.pc == RING_WAKE -> bump_wake(me.ringing, me.x); me.x = 0; me.pc = me.then }
    /* dlpi_ring_caller */
    :: d_step { me.pc == CALL -> me.pc = (want -> CALL_TAKE : me.then) } /* B1 */
    :: d_step { me.pc == CALL_TAKE -> me.pc = (want -> CALL_WAKE : me.then); want = 0 } /* B1 */
    :: d_step { me.pc == CALL_WAKE -> caller_stale = 1; caller_asleep = 0; me.pc = me.then }
#endif
    :: over -> break
    od
}

/* ---- death ---- */

/* What it was writing stays as it is, and nobody is at it. */
inline kill(g_) {
    deaths++;
    w[g_].pc = DEAD;
    w[g_].then = 0; w[g_].low = 0; w[g_].b = 0; w[g_].s = 0; w[g_].u = 0; w[g_].from = 0;
    w[g_].x = 0; w[g_].r = 0; w[g_].i = 0; w[g_].hints = 0; w[g_].all = 0; w[g_].sleepy = 0;
    w[g_].news = 0; w[g_].rewound = 0; w[g_].rewound_now = 0; w[g_].stale = 0; w[g_].asleep = 0;
    w[g_].ringing = 0;
    for (i : 0 .. SLOTS * ROWS - 1) {
        if :: row_by[i] == (g_) + 1 -> row_by[i] = 0 :: else fi
    }
    for (i : 0 .. SLOTS - 1) {
        if :: batch_by[i] == (g_) + 1 -> batch_by[i] = 0 :: else fi
    }
    i = 0
}

proctype killer() {
    byte i;
    do
    :: d_step { (MORTAL >> 0 & 1) && deaths < DEATHS && !over && w[0].pc != DEAD -> kill(0) }
#if W > 1
    :: d_step { (MORTAL >> 1 & 1) && deaths < DEATHS && !over && w[1].pc != DEAD -> kill(1) }
#endif
#if W > 2
    :: d_step { (MORTAL >> 2 & 1) && deaths < DEATHS && !over && w[2].pc != DEAD -> kill(2) }
#endif
    :: deaths == DEATHS || over -> break
    od
}

/* ---- recovery ---- */

/* What is taken back, and in which order: bits before ready, so that a late closer that finds the
   new ready finds no full word; all before the claims, so that who claims finds its input gone. */
#if defined(READY_BEFORE_BITS)
#define AFTER_NUMBER TAKE_READY
#define AFTER_BITS FREE
#define AFTER_READY TAKE_BITS
#define AFTER_FREE FREED
#elif defined(FREE_BEFORE_BITS)
#define AFTER_NUMBER TAKE_READY
#define AFTER_BITS FREED
#define AFTER_READY FREE
#define AFTER_FREE TAKE_BITS
#elif defined(FREE_BEFORE_READY)
#define AFTER_NUMBER TAKE_BITS
#define AFTER_BITS FREE
#define AFTER_READY FREED
#define AFTER_FREE TAKE_READY
#else
#define AFTER_NUMBER TAKE_BITS
#define AFTER_BITS TAKE_READY
#define AFTER_READY FREE
#define AFTER_FREE FREED
#endif

#ifdef FREE_FORWARDS
#define FREE_FROM first
#define FREE_TO q
#define FREE_STEP j++
#else
#define FREE_FROM q
#define FREE_TO first
#define FREE_STEP j--
#endif

/* Begin a part, or go on to the one behind it where it has nothing to do. */
inline begin_part(part_) {
    pc = part_;
    i = 0;
    if
    :: pc == TAKE_BITS -> j = first; if :: j >= q || j >= NI -> pc = AFTER_BITS :: else fi
    :: else
    fi;
    if
    :: pc == TAKE_READY ->
        j = (first < NI - 1 -> NI - 1 : first);
        if :: q < NI || j >= q -> pc = AFTER_READY :: else fi
    :: else
    fi;
    if /* once more: the order is a mutant's */
    :: pc == TAKE_BITS -> j = first; if :: j >= q || j >= NI -> pc = AFTER_BITS :: else fi
    :: else
    fi;
    if :: pc == FREE -> j = FREE_FROM :: else fi;
    if :: pc == FREED -> next_own() :: else fi
}

inline next_slot() {
    s++; gen = 0; u = 0; x = 0; n = 0; j = 0; i = 0; q = 0; first = 0;
#ifdef REWIND_FIRST
    pc = (s < SLOTS -> AT_SLOT : UNSLEEP)
#else
    pc = (s < SLOTS -> AT_SLOT : REWIND)
#endif
}

inline to_close() {
#ifdef NO_CLOSE
    next_slot()
#else
    u = 0; x = 0; n = 0; i = 0; pc = AT_CLOSE
#endif
}

/* The next own word to look at: those of its stage, then (where work may go back) of the stages
   before: what it has there it had taken over to give it up. */
inline next_own() {
    u++; x = 0; n = 0; i = 0; j = 0; first = 0;
    pc = AT_OWN;
    if
    :: u >= N_UNITS(q) && q > 0 && FAILS > 0 -> u = 0; q--
    :: u >= N_UNITS(q) && !(q > 0 && FAILS > 0) -> to_close()
    :: else
    fi
}

#ifdef REWIND_IF_FREED
#define REWINDS (freed && j <= k)
#else
#define REWINDS true
#endif

#ifdef RECOVERY_READS_READY_LATE
#define RECOVERY_SEES x = READY(s, NI - 1)
#else
#define RECOVERY_SEES skip
#endif

#ifdef REWIND_FIRST
#define BEGIN_AT REWIND
#else
#define BEGIN_AT AT_SLOT
#endif

inline replace() { /* a new life knows nothing: its rewind_seen is that of the beginning */
    w[g].pc = LOOK;
    w[g].news = 1;
    w[g].rewound = bumped[k];
    g = 0; k = 0; s = 0; freed = 0;
    pc = REST
}

proctype supervisor() {
    mtype pc = REST;
    byte g, k, q, s, gen, u, x, j, i, n, first;
    bit freed;
    do
    :: d_step { pc == REST && w[0].pc == DEAD -> g = 0; k = STAGE(0); pc = BEGIN_AT }
#if W > 1
    :: d_step { pc == REST && w[1].pc == DEAD -> g = 1; k = STAGE(1); pc = BEGIN_AT }
#endif
#if W > 2
    :: d_step { pc == REST && w[2].pc == DEAD -> g = 2; k = STAGE(2); pc = BEGIN_AT }
#endif
    :: d_step { pc == AT_SLOT -> /* P1 */
            gen = pub[s];
            q = k;
            if :: gen -> pc = AT_OWN :: else -> next_slot() fi
        }
    :: d_step { pc == AT_OWN -> /* O1 */
            x = OWN(s, q, u);
            if
            :: x != gen * 16 + g + 1 -> next_own()
            :: x == gen * 16 + g + 1 && q < k -> first = q; pc = AT_NUMBER
            :: else -> first = FIRST(q); pc = (q < NI -> AT_DONE : AT_READY)
            fi;
            x = 0
        }
    :: d_step { pc == AT_DONE -> /* D1: once */
            x = DONE(s, q, WORD_OF(u * RPU));
            if
            :: GEN_DONE(x) > gen -> x = 3
            :: GEN_DONE(x) < gen -> x = 0
            :: else -> x = x & 3
            fi;
            x = MASK_OF(u) & ~x; /* what is missing */
#ifdef FREE_UNSEEN
            x = MASK_OF(u);
#endif
#ifdef FREE_WHOLE_UNIT
            if :: x -> x = MASK_OF(u) :: else fi;
#endif
            pc = AT_OWN_AGAIN;
            if :: x == 0 -> next_own() :: else fi
        }
    :: d_step { pc == AT_OWN_AGAIN -> /* O1: who took the bits, took the unit over before */
#ifndef OWN_READ_ONCE
            if
            :: FAILS > 0 && OWN(s, q, u) != gen * 16 + g + 1 -> next_own()
            :: else -> pc = AT_NUMBER
            fi
#else
            pc = AT_NUMBER
#endif
        }
    :: d_step { pc == AT_READY -> /* Y1 */
            x = FULL;
            pc = AT_NUMBER;
#ifndef FREE_UNSEEN
            pc = AT_OWN_AGAIN;
            if :: LOW(READY(s, q)) >= gen -> next_own() :: else fi;
#endif
            skip
        }
    :: d_step { pc == AT_NUMBER ->
            n = frees[s];
#ifndef FREED_ALIKE
            frees[s]++;
#endif
            freed = 1;
            begin_part(AFTER_NUMBER)
        }
    :: d_step { pc == TAKE_BITS -> /* D1 */
            if
            :: q < NI -> DONE(s, j, WORD_OF(u * RPU)) = DONE(s, j, WORD_OF(u * RPU)) & ~x; i = WORDS
            :: else -> DONE(s, j, i) = DONE(s, j, i) & ~x; i++
            fi;
            NEWS;
            if :: i == WORDS -> i = 0; j++ :: else fi;
            if :: j >= q || j >= NI -> begin_part(AFTER_BITS) :: else fi
        }
    :: d_step { pc == TAKE_READY -> /* Y1 */
#if defined(READY_AS_BEFORE)
            READY(s, j) = (gen > SLOTS -> gen - SLOTS : 0);
#elif defined(READY_WITHOUT_COUNT)
            READY(s, j) = (READY(s, j) >> 3) * 8 + gen - 1;
#else
            READY(s, j) = (READY(s, j) >> 3) * 8 + 8 + gen - 1;
#endif
            NEWS;
            j++;
            if :: j >= q -> begin_part(AFTER_READY) :: else fi
        }
    :: d_step { pc == FREE -> /* O1 */
            OWN(s, j, (q < NI -> u : i)) = (gen - 1) * 16 + 8 + n;
            NEWS;
            if :: q >= NI -> i++ :: else -> i = UNITS fi;
            if
            :: i < N_UNITS(j)
            :: i >= N_UNITS(j) && j != FREE_TO -> i = 0; FREE_STEP
            :: else -> begin_part(AFTER_FREE)
            fi
        }
    :: d_step { pc == AT_CLOSE -> /* Y1: before the words */
            x = READY(s, NI - 1);
            pc = (WORDS > 1 -> AT_SCAN : AT_WORD);
            if :: LOW(x) >= gen -> next_slot() :: else fi
        }
    :: d_step { pc == AT_SCAN -> scan_begin(s, gen, x >> 3, i); pc = AT_WORD }
    :: d_step { pc == AT_WORD ->
            full_word(s, gen, i, j);
            if
            :: j && i < WORDS
            :: (!j || i == WORDS) && WORDS > 1 -> pc = AT_HINT
            :: j && WORDS == 1 -> pc = AT_CLOSE_READY
            :: else -> next_slot()
            fi
        }
#if WORDS > 1
    :: d_step { pc == AT_HINT -> /* D2 */
            scan[s] = gen * 64 + (x >> 3) * 4 + i;
            if :: j -> pc = AT_CLOSE_READY :: else -> next_slot() fi
        }
#endif
    :: d_step { pc == AT_CLOSE_READY -> /* Y1 */
            RECOVERY_SEES;
            if
            :: READY(s, NI - 1) == x -> READY(s, NI - 1) = (x >> 3) * 8 + gen; NEWS
            :: else
            fi;
            next_slot()
        }
    /* Always, in all stages: it may have died before it told the next one of rows that are back. */
    :: d_step { pc == REWIND -> /* R1 */
#ifndef NO_REWIND
            if :: REWINDS -> rewind(j) :: else fi;
#endif
            j++;
            if
            :: j < K
            :: else -> j = 0;
#ifdef REWIND_FIRST
                s = 0; pc = AT_SLOT
#else
                s = 0; pc = UNSLEEP
#endif
            fi
        }
#ifdef SLEEPS
    :: d_step { pc == UNSLEEP ->
            s = 0;
#ifndef WAKE_BITS_STAY
            mask[k] = mask[k] & ~(1 << g);
#endif
#ifdef WAKE_NOBODY
            pc = REPLACE
#else
            pc = WAKE
#endif
        }
    :: d_step { pc == WAKE ->
            bump_wake(j, 7);
            j++;
            if :: j == K -> j = 0; pc = WAKE_CALLER :: else fi
        }
    :: d_step { pc == WAKE_CALLER -> caller_stale = 1; caller_asleep = 0; pc = REPLACE }
    :: d_step { pc == REPLACE -> replace() }
#else
    :: d_step { pc == UNSLEEP -> replace() }
#endif
    :: over -> break
    od
}

init {
    atomic {
        w[0].pc = LOOK; w[0].news = 1; run worker(0);
#if W > 1
        w[1].pc = LOOK; w[1].news = 1; run worker(1);
#endif
#if W > 2
        w[2].pc = LOOK; w[2].news = 1; run worker(2);
#endif
        run supervisor();
        run killer();
        run caller()
    }
}
