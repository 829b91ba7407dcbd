/* The part queue (dlpipe.h, >>impl-parts): who may write to a part cell and when,
   where any worker may die before any of its steps, and the caller may leave an epoch, seek, stop.

   A feeder (a thread, or the caller himself) looks ahead, gives cells to parts, feeds a batch when
   its parts are there; part workers look, claim, load and sleep; item workers read the cells of
   batches; a supervisor recovers after a death is proved, step by step, while everybody else goes
   on. A step (a d_step) is one access of a shared word, by the labels of dlpipe.h; what only the
   feeder knows goes with it. Claims and completion of batches and their recovery are one step each:
   they are the business of tests/model/model_crash.pml. Memory is sequentially consistent.

   Checked in every state
     no part is in two cells; who loads is alone with the cell and its word, and ends what it began;
     no fields are written while somebody loads, and no byte while somebody reads;
     a row is read of a cell that is LOADED with its part; a failure is of this epoch's own load;
     batches come in their order, each once, each row of the right part;
     every run comes to its end: no sleep has a time-out (but after a stop, if a waker is dead), and
     no state without a next one is valid before all have returned.

   An epoch has B batches of two rows, each of a part of its own, B + 1 parts in all: batch k has k
   and k + 1; odd epochs go through them backwards, so that one ends with the parts that the next
   begins with. So each batch needs two cells, of C.
     E epochs; PW part workers, IW item workers; PREFETCH batches
     DEATHS, FAILS, RETRIES   so many at most: of loads that end FAILED, or OPEN once more
     MORTAL       who may die, a bit for each, part workers first
     THREADED     the feeder is a thread
     INPLACE      a map of batches in place behind fetch: it may send a batch back to fetch, once
     NEXTS, SEEKS the caller leaves an epoch, or goes on at batch SEEK_TO, so often, anywhere
     QUITS        he stops anywhere
     EMPTIES      each cell is claimed twice: to be made, and to be emptied into a box. Rows are
                  read of the box
   tests/model/model_parts.sh has the sizes, and the mutants: each is one of the switches below.
   Not modelled: runs of inputs in one cell (model_links.c has them), times before the next try,
   parts of no items, batches that need fewer cells.
   Found not to matter: that tickets grow (ALIKE), since fields are read behind the claim: they give
   the order in which parts are loaded; that a bit of Q3 is cleared at all (KEEPS_ITS_BIT: it costs
   looks), but it must not be behind what follows the claim; and that a loader that was woken and
   found work by itself passes the ring on (PASSES_NOTHING_ON): he comes back and takes what is
   open. */

#ifndef B
#define B 2
#endif
#ifndef E
#define E 1
#endif
#ifndef C
#define C 2
#endif
#ifndef PW
#define PW 1
#endif
#ifndef IW
#define IW 1
#endif
#ifndef PREFETCH
#define PREFETCH 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef MORTAL
#define MORTAL 255
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef RETRIES
#define RETRIES 0
#endif
#ifndef NEXTS
#define NEXTS 0
#endif
#ifndef SEEKS
#define SEEKS 0
#endif
#ifndef SEEK_TO
#define SEEK_TO 0
#endif
#define SLOTS (PREFETCH + 1)
#define ALL (B * E)
#ifdef INPLACE
#define MW 1
#define MAPPER (PW + IW)
#else
#define MW 0
#endif
#define WORKERS (PW + IW + MW)

#define EPOCH(l) ((l) / B)
#define PART(l, i) (EPOCH(l) % 2 -> B - ((l) % B + (i)) : (l) % B + (i))

/* What is with a ticket, beside a worker's number + 1. */
#define CLOSED 0
#define OPEN 101
#define LOADED 102
#define FAILED 103

/* Shared. A cell's word is low and ticket. */
byte low[C], ticket[C];
byte may = 0;       /* Q3: a bit for each cell that may be open */
byte part[C];       /* a field, for all of them */
byte loads;         /* source_moves */
byte life, cancel;  /* of the marks that are wanted: seeks, and the first batch */
byte tail, delivered;
bit stop;
byte mask;          /* of the part workers' wake word */
bit want, caller_asleep, caller_stale = 1;
bit rings, feeder_asleep, feeder_stale = 1; /* rings: feeder_sleeps */

/* Batches in slots: number + 1, place, life, cells of the rows, rows that failed. */
byte seq[SLOTS], place[SLOTS], born[SLOTS], own[SLOTS], ready[SLOTS];
byte pcell[SLOTS * 2], row[SLOTS * 2];
bit failed[SLOTS * 2];
#define NO_PART 99 /* a row of a part that failed, or of a batch not wanted */
#ifdef INPLACE
byte done[SLOTS];   /* ready of the map */
#define READY_LAST(s) done[s]
#else
#define READY_LAST(s) ready[s]
#endif
#if defined(INPLACE) && defined(LEAVES_AFTER_FETCH)
#define READY_END(s) ready[s]
#else
#define READY_END(s) READY_LAST(s)
#endif
#define WANTED(s) (born[s] == life && place[s] >= cancel)

/* What lies in a cell: part + 1; who writes, + 1; who reads, a bit for each. */
byte bytes[C], writer[C], readers[C];
#ifdef EMPTIES
bit granted[C]; /* a field: the cell is to be emptied */
byte box[C];    /* the box of a cell; part + 1 */
#define FULL(c_) (box[c_] == part[c_] + 1)
#define TO_MAKE(c_) (!granted[c_])
#else
#define TO_MAKE(c_) true
#define FULL(c_) (bytes[c_] == part[c_] + 1)
#endif

byte deaths, fails, retries, sought, seeks, nexts;
bit feeding, moved; /* the caller feeds, and waits for the end of it; it published something */
bit back;           /* the map sent a batch back */

mtype = { LOOK, BITS, SCAN, CLAIM, TAKEN, WORD, BIT, WAIT, UP, FOUND, RING_TAKE, RING_WAKE, LOAD,
          LOAD_END, MAY, STATE, COUNT, CALL, CALL_TAKE, CALL_WAKE, READ, READ_END, READY, OVER,
          DEAD };
typedef one {
    mtype pc;
    bit sleepy, asleep;
    bit stale; /* the wake word's word changed since it was read; 1 where nobody reads it */
    byte i, c, b, x, what; /* what: bits to wake, or what the cell is to be */
}
one w[WORKERS];

#define me w[g]
#define GONE (w[g].pc == OVER || (w[g].pc == DEAD && stop))

/* ---- waiters ---- */

inline bump_of(g_, bits_) {
    w[g_].stale = 1;
    if :: ((bits_) >> (g_)) & 1 -> w[g_].asleep = 0 :: else fi
}
inline bump_wake(bits_) { /* change the wake word's word, wake these part workers */
    bump_of(0, bits_);
#if PW > 1
    bump_of(1, bits_);
#endif
    skip
}
inline wake_feeder() {
#ifdef THREADED
    feeder_stale = 1;
    feeder_asleep = 0
#else
    skip
#endif
}
inline wake_caller() { caller_stale = 1; caller_asleep = 0 }
inline ring_caller() { if :: want -> want = 0; wake_caller() :: else fi } /* where it is one step */
inline ring_feeder() {
#ifdef THREADED
    if :: rings -> rings = 0; wake_feeder() :: else fi
#else
    skip
#endif
}
inline ring_all() {
    bump_wake(mask);
    mask = 0;
    ring_feeder();
    ring_caller()
}
#ifdef THREADED
#define CALLED rings
#define WAKE_OTHER wake_feeder()
#else
#define CALLED want
#define WAKE_OTHER wake_caller()
#endif
#define ONE_OF(bits) ((bits) & (0 - (bits)))
#define SLEEP_ENDS (stop && deaths > 0) /* its waker may be dead, and nobody recovers any more */

/* ---- part workers ---- */

inline forget() { me.i = 0; me.c = 0; me.b = 0; me.x = 0; me.what = 0 }
inline go(pc_) { forget(); me.pc = pc_ }

#ifdef CLAIM_BY_STORE
#define CLAIMED true
#else
#define CLAIMED (low[me.c] == OPEN && ticket[me.c] == me.b)
#endif
#ifdef PASSES_NOTHING_ON
#define PASSES false
#else
#define PASSES true
#endif
#ifdef NO_SECOND_LOOK
#define AFTER_BIT WAIT
#else
#define AFTER_BIT BITS
#endif
#ifdef CLEARS_LATE /* behind what it says of the cell */
#define AFTER_CLAIM (me.sleepy -> FOUND : LOAD)
#define AFTER_TAKEN LOOK
#else
#define AFTER_CLAIM TAKEN
#define AFTER_TAKEN (me.sleepy -> FOUND : LOAD)
#endif
#ifdef NO_BITS
#define SEEN_BITS 255
#else
#define SEEN_BITS may
#endif
#if defined(RINGS_FIRST)
#define AFTER_LOAD CALL
#define AFTER_STATE COUNT
#define AFTER_COUNT LOOK
#define AFTER_CALL STATE
#elif defined(COUNTS_FIRST)
#define AFTER_LOAD COUNT
#define AFTER_STATE CALL
#define AFTER_COUNT STATE
#define AFTER_CALL LOOK
#else
#define AFTER_LOAD STATE
#define AFTER_STATE COUNT
#define AFTER_COUNT CALL
#define AFTER_CALL LOOK
#endif
#define LOOK_OR(pc_) me.pc = pc_; if :: me.pc == LOOK -> forget() :: else fi

proctype loader(byte g) {
    do
    :: d_step { me.pc == LOOK && stop -> go(OVER) } /* S1 */
    /* dlpi_input_find. One word of bits for all cells, read again behind each cell looked at */
    :: d_step { me.pc == BITS || (me.pc == LOOK && !stop) -> /* Q3, B1 */
            do
            :: me.i < C && !(SEEN_BITS >> me.i & 1) -> me.i++
            :: else -> break
            od;
            if
            :: me.i < C -> me.pc = SCAN
            :: me.i == C && me.b -> me.pc = CLAIM
            :: else -> go(WORD); if :: me.sleepy -> me.pc = WAIT :: else fi
            fi
        }
    :: d_step { me.pc == SCAN -> /* Q1, B1 */
            me.pc = BITS;
            if
            :: low[me.i] == OPEN && (me.b == 0 || ticket[me.i] < me.b) ->
                me.b = ticket[me.i];
                me.c = me.i;
#ifdef FIELDS_BEFORE_CLAIM
                me.x = part[me.i]
#endif
            :: else
            fi;
            me.i++
        }
    :: d_step { me.pc == CLAIM -> /* Q1 */
            if
            :: CLAIMED ->
                low[me.c] = g + 1;
                me.i = 0;
                me.pc = AFTER_CLAIM;
                if
                :: me.sleepy || !(mask >> g & 1)
                :: else -> assert(false) /* a set bit says: I can take work */
                fi
            :: else -> go(BITS)
            fi
        }
    :: d_step { me.pc == TAKEN -> /* Q3 */
#ifndef KEEPS_ITS_BIT
            may = may & ~(1 << me.c);
#endif
            LOOK_OR(AFTER_TAKEN)
        }
    /* dlpi_wait_once, of a worker */
    :: d_step { me.pc == WORD -> me.stale = 0; me.pc = BIT } /* B1 */
    :: d_step { me.pc == BIT -> /* B1 */
            mask = mask | 1 << g;
            me.sleepy = 1;
            if :: stop -> me.pc = UP :: else -> me.pc = AFTER_BIT fi
        }
    :: d_step { me.pc == WAIT -> me.asleep = !me.stale; me.pc = UP } /* the futex compares */
    :: d_step { me.pc == UP && (!me.asleep || SLEEP_ENDS) -> /* B1 */
            mask = mask & ~(1 << g);
            me.asleep = 0;
            me.sleepy = 0;
            me.stale = 1;
            go(LOOK)
        }
    :: d_step { me.pc == FOUND -> /* B1 */
            me.sleepy = 0;
            me.stale = 1;
            me.pc = LOAD;
            if
            :: PASSES && !(mask >> g & 1) && ONE_OF(mask) ->
                me.what = ONE_OF(mask);
                me.pc = RING_TAKE
            :: else
            fi;
            mask = mask & ~(1 << g)
        }
    :: d_step { me.pc == RING_TAKE -> /* B1 */
            me.what = me.what & mask;
            mask = mask & ~me.what;
            me.pc = (me.what -> RING_WAKE : LOAD)
        }
    :: d_step { me.pc == RING_WAKE -> bump_wake(me.what); me.what = 0; me.pc = LOAD } /* B1 */
    /* dlpi_part_run */
    :: d_step { me.pc == LOAD ->
#ifndef FIELDS_BEFORE_CLAIM
            me.x = part[me.c];
#endif
            assert(writer[me.c] == 0 && readers[me.c] == 0);
            assert(low[me.c] == g + 1 && ticket[me.c] == me.b && part[me.c] == me.x);
            writer[me.c] = g + 1;
#ifdef EMPTIES
            box[me.c] = 0;
            if :: !granted[me.c] -> bytes[me.c] = 0 :: else fi;
#else
            bytes[me.c] = 0;
#endif
            me.pc = LOAD_END
        }
    :: d_step { me.pc == LOAD_END ->
            assert(writer[me.c] == g + 1 && readers[me.c] == 0 && part[me.c] == me.x);
            writer[me.c] = 0;
#ifdef EMPTIES
            if
            :: granted[me.c] -> box[me.c] = bytes[me.c]
            :: else -> bytes[me.c] = me.x + 1
            fi;
#else
            bytes[me.c] = me.x + 1;
#endif
            me.what = LOADED;
            me.pc = AFTER_LOAD
        }
#if FAILS > 0
    :: d_step { me.pc == LOAD_END && fails < FAILS && TO_MAKE(me.c) ->
            fails++;
            writer[me.c] = 0;
            me.what = FAILED;
            me.pc = AFTER_LOAD
        }
#endif
#if RETRIES > 0
    :: d_step { me.pc == LOAD_END && retries < RETRIES && TO_MAKE(me.c) ->
            retries++;
            writer[me.c] = 0;
            me.what = OPEN;
            me.pc = MAY
        }
#endif
    :: d_step { me.pc == MAY -> may = may | 1 << me.c; me.pc = STATE } /* Q3 */
    :: d_step { me.pc == STATE -> /* Q1, B1 */
            assert(low[me.c] == g + 1 && ticket[me.c] == me.b);
            low[me.c] = me.what;
            if
            :: me.what == OPEN -> go(LOOK)
#ifdef CLEARS_LATE
            :: else -> loads++; ring_feeder(); if :: want -> want = 0; wake_caller() :: else fi;
                me.pc = TAKEN
#else
            :: else -> LOOK_OR(AFTER_STATE)
#endif
            fi
        }
    :: d_step { me.pc == COUNT -> /* Q2 */
#ifndef COUNTS_NOTHING
            loads++;
#endif
            LOOK_OR(AFTER_COUNT)
        }
    /* dlpi_ring_feeder, dlpi_ring_caller */
    :: d_step { me.pc == CALL -> /* B1 */
            if :: CALLED -> me.pc = CALL_TAKE :: else -> LOOK_OR(AFTER_CALL) fi
        }
    :: d_step { me.pc == CALL_TAKE -> /* B1 */
            if :: CALLED -> CALLED = 0; me.pc = CALL_WAKE :: else -> LOOK_OR(AFTER_CALL) fi
        }
    :: d_step { me.pc == CALL_WAKE -> WAKE_OTHER; LOOK_OR(AFTER_CALL) } /* B1 */
    :: GONE -> break
    od
}

/* ---- item workers, and the map behind ---- */

#define FETCHABLE(s) (seq[s] > 0 && own[s] == 0 && ready[s] < seq[s])

inline claim(s_) { own[s_] = g + 1; me.b = s_; me.pc = READ }

inline next_row() {
    me.c = 0;
    me.i++;
    if :: me.i == 2 -> me.pc = READY :: else -> me.pc = READ fi
}

proctype fetcher(byte g) {
    do
    :: d_step { me.pc == LOOK && stop -> go(OVER) }
    :: d_step { me.pc == LOOK && !stop && FETCHABLE(0) -> claim(0) }
    :: d_step { me.pc == LOOK && !stop && FETCHABLE(1) -> claim(1) }
#if SLOTS > 2
    :: d_step { me.pc == LOOK && !stop && FETCHABLE(2) -> claim(2) }
#endif
    :: d_step { me.pc == READ -> /* dlpi_item_part; N1 */
            me.c = pcell[me.b * 2 + me.i];
            if
            :: failed[me.b * 2 + me.i] || !WANTED(me.b) ->
                row[me.b * 2 + me.i] = NO_PART;
                next_row()
            :: else ->
                assert(low[me.c] == LOADED && writer[me.c] == 0);
                assert(part[me.c] == PART(place[me.b], me.i) && FULL(me.c));
                readers[me.c] = readers[me.c] | 1 << g;
                me.pc = READ_END
            fi
        }
    :: d_step { me.pc == READ_END ->
            assert(low[me.c] == LOADED && writer[me.c] == 0 && FULL(me.c));
            readers[me.c] = readers[me.c] & ~(1 << g);
            row[me.b * 2 + me.i] = part[me.c];
            next_row()
        }
    :: d_step { me.pc == READY -> /* Y1 */
            assert(own[me.b] == g + 1);
            ready[me.b] = seq[me.b];
#ifndef INPLACE
            ring_caller();
#endif
            go(LOOK)
        }
    :: GONE -> break
    od
}

#ifdef INPLACE
#define MAPPABLE(s) (seq[s] > 0 && ready[s] == seq[s] && done[s] < seq[s])

inline send_back(s_) { own[s_] = 0; ready[s_] = 0; row[s_ * 2] = 0; row[s_ * 2 + 1] = 0 }

proctype mapper(byte g) {
    do
    :: d_step { me.pc == LOOK && stop -> go(OVER) }
    :: d_step { me.pc == LOOK && !stop && MAPPABLE(0) -> me.b = 0; me.pc = READY }
    :: d_step { me.pc == LOOK && !stop && MAPPABLE(1) -> me.b = 1; me.pc = READY }
#if SLOTS > 2
    :: d_step { me.pc == LOOK && !stop && MAPPABLE(2) -> me.b = 2; me.pc = READY }
#endif
    :: d_step { me.pc == READY -> done[me.b] = seq[me.b]; ring_caller(); go(LOOK) } /* Y1 */
    :: d_step { me.pc == READY && !back -> /* dlpi_rows_redo */
            back = 1;
            send_back(me.b);
            go(LOOK)
        }
    :: GONE -> break
    od
}
#endif

/* ---- the feeder ---- */

/* dlpi_part_use. Which epochs a cell's part is for; which batch needs it last; which fed batch. */
bit given[C], needed[C];
byte u_part[C], u_epoch[C], u_until[C], need[C], need_epoch[C], used[C];
byte load_of[C]; /* epoch that asked for the load; before a seek: ANY, or OLD if it had failed */
#define ANY 98
#define OLD 99

mtype = { REST, GOTO, COUNTED, BASE, LEAVE, PIECE, KNOWN, FREE, CLOSE, FIELDS, OFFERED, OPENED,
               GRANT, GRANT_BIT, GRANTED,
               LOOKED, WAITER_MASK, WAITER_TAKE, WAITER_WAKE, CREDIT, THERE, FILL, TAIL, FED, AGAIN,
               ASLEEP };

#ifdef NEED_UNSEEN
#define STILL_NEEDED(c_) false
#else
#define STILL_NEEDED(c_) (needed[c_] && need[c_] >= cur)
#endif
#ifdef LEFT_UNSEEN
#define STILL_USED(c_) false
#else
#define STILL_USED(c_) (used[c_] > left)
#endif
#ifdef TAKES_LOADING
#define IS_LOADING(l_) false
#else
#define IS_LOADING(l_) ((l_) < OPEN)
#endif
#ifdef CLOSES_BY_STORE
#define CLOSES true
#else
#define CLOSES (low[c] == OPEN && ticket[c] == x)
#endif
#ifdef FEEDS_UNLOADED
#define IS_THERE(l_) true
#else
#define IS_THERE(l_) ((l_) == LOADED || (l_) == FAILED)
#endif
#if defined(EMPTIES) && !defined(READS_UNEMPTIED)
#define IS_MADE(c_) (low[c_] == LOADED && !granted[c_])
#else
#define IS_MADE(c_) false
#endif
#ifdef GRANTS_LATE
#define TO_GRANT GRANTED
#define AFTER_GRANTED GRANT
#else
#define TO_GRANT GRANT
#define AFTER_GRANTED WAITER_MASK
#endif
#ifdef OPENS_FIRST
#define TO_ISSUE OFFERED
#define AFTER_OPENED FIELDS
#else
#define TO_ISSUE FIELDS
#define AFTER_OPENED PIECE
#endif

/* dlpi_part_find_cell: C for none */
inline find_cell(p_, e_) {
    c = 0;
    do
    :: c < C && !(given[c] && u_part[c] == (p_) && u_epoch[c] <= (e_) && u_until[c] > (e_)) -> c++
    :: else -> break
    od;
    skip
}

inline need_it() { /* the piece looked at has cell c */
    needed[c] = 1;
    need[c] = q;
    need_epoch[c] = EPOCH(q);
    c = 0;
    x = 0;
    i++;
    if :: i == 2 -> i = 0; q++ :: else fi
}

inline pieces() { /* as far as no word need be read */
    pc = PIECE;
    do
    :: pc == PIECE && (q == ALL || EPOCH(q) > EPOCH(cur) + 1) -> pc = LOOKED
    :: pc == PIECE && !(q == ALL || EPOCH(q) > EPOCH(cur) + 1) ->
        find_cell(PART(q, i), EPOCH(q));
        if
        :: c < C && need_epoch[c] < EPOCH(q) -> pc = KNOWN
        :: c < C && need_epoch[c] >= EPOCH(q) -> need_it()
        :: else -> c = 0; pc = FREE
        fi
    :: else -> break
    od;
    skip
}

inline is_stuck() { stuck = 1; i = 0; c = 0; x = 0; pc = LOOKED }

/* Where he feeds himself, no word that the caller alone writes changes meanwhile. */
#ifdef THREADED
#define COUNTS pc = COUNTED
#define TAKES_BASE pc = BASE
#define CREDITS pc = CREDIT
#define END_FEED pc = FED
#else
#define COUNTS seen_now = loads; take_base()
#define TAKES_BASE take_base()
#define CREDITS credit()
#define END_FEED feeding = 0; pc = REST
#endif

inline end_feed() { i = 0; c = 0; x = 0; cur = 0; fresh = 0; seen_now = 0; second = 0; END_FEED }
inline look_ahead() {
    if
    :: f == ALL -> end_feed() /* ended */
    :: else ->
        cur = (f_life == life && f < cancel -> cancel : f);
        if :: q < cur -> q = cur :: else fi;
        pc = COUNTED
    fi
}
inline feed_over() { if :: moved -> second = 1; look_ahead() :: else -> end_feed() fi }
inline credit() {
    if :: f_life == life && f < cancel -> f = cancel :: else fi;
    i = 0;
    c = 0;
    if
    :: f < ALL && f < q && tail - delivered < PREFETCH && seq[tail % SLOTS] == 0 -> pc = THERE
    :: else -> feed_over()
    fi
}
inline take_base() { if :: left < delivered -> left = delivered :: else fi; pc = LEAVE }
inline ahead_over() {
    i = 0;
    c = 0;
    x = 0;
    cur = 0;
    fresh = 0;
    seen_now = 0;
    if
    :: second -> second = 0; end_feed()
    :: else -> CREDITS
    fi
}

#ifdef THREADED
#define BEGINS (!stop)
#else
#define BEGINS feeding
#endif

proctype feeder() {
    mtype pc = REST;
    byte f, q;         /* fed next, looked at next */
    byte f_life, left, tickets;
    bit stuck, second, sleepy;
    byte seen, seen_left, seen_loads;
    byte i, c, x, cur, seen_now, fresh;
    do
    /* dlpi_feed_follow */
    :: d_step { pc == REST && BEGINS -> /* N1 */
            moved = 0;
            if
            :: life != f_life ->
                f_life = life;
                f = sought;
                q = sought;
                stuck = 0;
                pc = GOTO
            :: else -> look_ahead()
            fi
        }
    :: d_step { pc == GOTO -> /* Q1; dlpi_parts_goto */
            needed[c] = 0;
            load_of[c] = (low[c] == FAILED -> OLD : ANY);
#ifdef SEEK_KEEPS_FAILED
            u_epoch[c] = 0;
#else
            if
            :: u_until[c] != 255 || low[c] == FAILED -> u_until[c] = 0
#ifdef SEEK_KEEPS_EPOCH
            :: else
#else
            :: else -> u_epoch[c] = 0
#endif
            fi;
#endif
            c++;
            if :: c == C -> look_ahead() :: else fi
        }
    /* dlpi_parts_ahead */
    :: d_step { pc == COUNTED -> seen_now = loads; TAKES_BASE } /* Q2 */
#ifdef THREADED
    :: d_step { pc == BASE -> take_base() } /* V1 */
#endif
    :: d_step { pc == LEAVE -> /* Y1 */
            if
            :: left < tail && READY_END(left % SLOTS) == left + 1 -> left++
            :: else ->
                pc = LOOKED;
                if
                :: stuck && seen == cur && seen_left == left && seen_loads == seen_now ->
                    ahead_over()
                :: else ->
                    stuck = 0;
                    pieces()
                fi
            fi
        }
    /* dlpi_parts_look */
    :: d_step { pc == KNOWN -> /* Q1 */
            if
#ifndef SAME_FAILURE
            :: low[c] == FAILED -> u_until[c] = EPOCH(q); c = 0; pc = FREE
            :: low[c] != FAILED && low[c] != LOADED -> is_stuck() /* who knows? */
#endif
            :: else -> need_it(); pieces()
            fi
        }
    :: d_step { pc == FREE -> /* Q1; dlpi_part_free_cell */
            if
            :: c == C -> is_stuck()
            :: else ->
                if
                :: !given[c] -> pc = TO_ISSUE
                :: given[c] && (STILL_NEEDED(c) || STILL_USED(c) || IS_LOADING(low[c])) -> c++
                :: given[c] && !(STILL_NEEDED(c) || STILL_USED(c) || IS_LOADING(low[c])) ->
                    x = ticket[c];
                    pc = (low[c] == OPEN -> CLOSE : TO_ISSUE)
                fi
            fi
        }
    :: d_step { pc == CLOSE -> /* Q1 */
            if
            :: CLOSES -> low[c] = CLOSED; pc = TO_ISSUE
            :: else -> c++; pc = FREE
            fi;
            x = 0
        }
    /* dlpi_part_issue */
    :: d_step { pc == FIELDS ->
#ifndef OPENS_FIRST
            assert(low[c] == CLOSED || low[c] == LOADED || low[c] == FAILED);
#endif
            assert(writer[c] == 0 && readers[c] == 0);
            x = 0;
            do /* no part is in two cells */
            :: x < C ->
                assert(x == c || !given[x] || u_part[x] != PART(q, i) || low[x] == CLOSED ||
                       low[x] == FAILED);
                x++
            :: else -> break
            od;
            x = 0;
            given[c] = 1;
            u_part[c] = PART(q, i);
            u_epoch[c] = EPOCH(q);
            u_until[c] = 255;
            used[c] = 0;
            load_of[c] = EPOCH(q);
            part[c] = PART(q, i);
#ifdef EMPTIES
            granted[c] = 0;
            box[c] = 0;
#endif
#ifdef OPENS_FIRST
            need_it();
            pieces()
#else
            pc = OFFERED
#endif
        }
    :: d_step { pc == OFFERED -> /* Q3; dlpi_input_offer */
#ifndef OFFERS_NO_BIT
            may = may | 1 << c;
#endif
            pc = OPENED
        }
    :: d_step { pc == OPENED -> /* Q1, B1 */
#ifndef ALIKE
            tickets++;
#endif
            ticket[c] = tickets + 1;
            low[c] = OPEN;
            fresh++;
#ifdef OPENS_FIRST
            pc = FIELDS
#else
            need_it();
            pieces()
#endif
        }
    :: d_step { pc == LOOKED ->
            seen = cur;
            seen_left = left;
            seen_loads = seen_now;
#ifdef COUNT_SEEN_LATE
            seen_loads = loads;
#endif
            if :: fresh -> i = 0; c = 0; pc = WAITER_MASK :: else -> ahead_over() fi
        }
    /* dlpi_ring */
    :: d_step { pc == WAITER_MASK -> /* B1 */
            x = ONE_OF(mask);
            if :: fresh > 1 -> x = x | ONE_OF(mask & ~x) :: else fi;
            if :: x -> pc = WAITER_TAKE :: else -> ahead_over() fi
        }
    :: d_step { pc == WAITER_TAKE -> /* B1 */
            x = x & mask;
            mask = mask & ~x;
            if :: x -> pc = WAITER_WAKE :: else -> ahead_over() fi
        }
    :: d_step { pc == WAITER_WAKE -> bump_wake(x); ahead_over() } /* B1 */
    /* dlpi_feed_one; N1, V1, C1 */
#ifdef THREADED
    :: d_step { pc == CREDIT -> credit() }
#endif
    :: d_step { pc == THERE -> /* Q1; dlpi_parts_there */
            find_cell(PART(f, i), EPOCH(f));
            assert(c < C);
            if
            :: IS_MADE(c) -> pc = TO_GRANT
            :: !IS_MADE(c) && IS_THERE(low[c]) -> c = 0; i++; if :: i == 2 -> pc = FILL :: else fi
            :: else -> feed_over()
            fi
        }
#ifdef EMPTIES
    /* dlpi_boxes_grant */
    :: d_step { pc == GRANT ->
#ifndef GRANTS_LATE
            assert(low[c] == LOADED && writer[c] == 0);
#endif
            granted[c] = 1;
#ifdef GRANTS_LATE
            i = 0;
            c = 0;
            pc = WAITER_MASK
#else
            pc = GRANT_BIT
#endif
        }
    :: d_step { pc == GRANT_BIT -> may = may | 1 << c; pc = GRANTED } /* Q3 */
    :: d_step { pc == GRANTED -> /* Q1, B1 */
#ifdef GRANTS_LATE
            may = may | 1 << c;
#endif
            low[c] = OPEN;
            fresh = 1;
            pc = AFTER_GRANTED;
            if :: pc == WAITER_MASK -> i = 0; c = 0 :: else fi
        }
#endif
    :: d_step { pc == FILL -> /* Q1: which change no more; dlpi_parts_fill */
            for (i : 0 .. 1) {
                find_cell(PART(f, i), EPOCH(f));
                assert(c < C);
                x = (tail % SLOTS) * 2 + i;
                pcell[x] = c;
                failed[x] = (low[c] == FAILED);
                assert(low[c] != FAILED || load_of[c] == ANY || load_of[c] == EPOCH(f));
                used[c] = tail + 1
            }
            i = 0;
            c = 0;
            x = 0;
            pc = TAIL
        }
    :: d_step { pc == TAIL -> /* P1, T1 */
            x = tail % SLOTS;
            place[x] = f;
            born[x] = f_life;
            own[x] = 0;
            seq[x] = tail + 1;
            tail++;
            f++;
            x = 0;
            moved = 1;
            CREDITS
        }
#ifdef THREADED
    /* dlpi_thread_feeder */
    :: d_step { pc == FED && (moved || sleepy == 0) ->
            if
            :: moved -> rings = 0; sleepy = 0; feeder_stale = 1; pc = REST
            :: else -> feeder_stale = 0; pc = AGAIN /* B1 */
            fi
        }
    :: d_step { pc == AGAIN -> rings = 1; sleepy = 1; pc = REST } /* B1 */
    :: d_step { pc == FED && !moved && sleepy -> /* the futex compares */
            feeder_asleep = !feeder_stale && !stop;
            pc = ASLEEP
        }
    :: d_step { pc == ASLEEP && (!feeder_asleep || SLEEP_ENDS) -> /* B1 */
            feeder_asleep = 0;
            feeder_stale = 1;
            rings = 0;
            sleepy = 0;
            pc = REST
        }
    :: stop && pc == REST -> break
#else
    :: stop && pc == REST && !feeding -> break
#endif
    od
}

/* ---- the caller ---- */

#ifdef THREADED
#define FEED skip
#define INPUT_OVER true
#define FED_SOME false
#else
#define FEED feeding = 1
#define INPUT_OVER (!feeding)
#define FED_SOME moved
#endif
#ifdef NO_LAST_FEED
#define LAST_FEED skip
#else
#define LAST_FEED FEED
#endif
#define NOW (delivered % SLOTS)
#define TAKES (delivered < tail && READY_LAST(NOW) == delivered + 1)

inline row_is(i_) {
    assert(row[x * 2 + (i_)] == (failed[x * 2 + (i_)] -> NO_PART : PART(next, i_)))
}

proctype caller() {
    byte next, x; /* batch to come */
    do
    :: next < ALL ->
#if NEXTS > 0
        if
        :: d_step { nexts < NEXTS && EPOCH(next) + 1 < E -> /* N1; dlpi_epoch_leave */
                nexts++;
                next = (EPOCH(next) + 1) * B;
                cancel = next;
                ring_all()
            }
        :: skip
        fi;
#endif
#if SEEKS > 0
        if
        :: d_step { seeks < SEEKS -> /* N1; dlpi_seek */
                seeks++;
                next = SEEK_TO;
                sought = SEEK_TO;
                life++;
                cancel = 0;
                ring_all()
            }
            FEED
        :: skip
        fi;
#endif
#ifdef QUITS
        if :: break :: skip fi;
#endif
        FEED;
        if
        :: d_step { INPUT_OVER && TAKES -> /* Y1 */
                x = NOW;
                if
                :: WANTED(x) ->
                    assert(place[x] == next && born[x] == life);
                    row_is(0);
                    row_is(1);
                    next++
                :: else
                fi;
                row[x * 2] = 0; row[x * 2 + 1] = 0;
                failed[x * 2] = 0; failed[x * 2 + 1] = 0;
                pcell[x * 2] = 0; pcell[x * 2 + 1] = 0;
                place[x] = 0; born[x] = 0; own[x] = 0;
                delivered++; /* V1 */
                ring_feeder()
            }
            d_step { seq[x] = 0; x = 0; ring_feeder() } /* C1 */
        :: d_step { INPUT_OVER && !TAKES -> caller_stale = 0 } /* B1; dlpi_consumer_sleep */
            want = 1; /* B1 */
            if
            :: d_step { TAKES -> want = 0; caller_stale = 1 }
            :: d_step { !TAKES -> LAST_FEED }
                /* the futex compares */
                d_step { INPUT_OVER -> caller_asleep = !caller_stale && !FED_SOME }
                d_step { !caller_asleep -> want = 0; caller_stale = 1 }
            fi
        fi
    :: next == ALL -> break
    od;
    stop = 1; /* S1 */
    d_step { ring_all() }
}

/* ---- death and recovery ---- */

inline kill(g_) {
    deaths++;
    w[g_].pc = DEAD;
    w[g_].i = 0; w[g_].c = 0; w[g_].b = 0; w[g_].x = 0; w[g_].what = 0;
    w[g_].sleepy = 0; w[g_].stale = 1; w[g_].asleep = 0;
    for (i : 0 .. C - 1) {
        if :: writer[i] == (g_) + 1 -> writer[i] = 0 :: else fi;
        readers[i] = readers[i] & ~(1 << (g_))
    }
    i = 0
}
#define MAY_DIE(g_) ((MORTAL >> (g_) & 1) && deaths < DEATHS && !stop && w[g_].pc != DEAD)

proctype killer() {
    byte i;
    do
    :: d_step { MAY_DIE(0) -> kill(0) }
#if WORKERS > 1
    :: d_step { MAY_DIE(1) -> kill(1) }
#endif
#if WORKERS > 2
    :: d_step { MAY_DIE(2) -> kill(2) }
#endif
#if WORKERS > 3
    :: d_step { MAY_DIE(3) -> kill(3) }
#endif
    :: deaths == DEATHS || stop -> break
    od
}

mtype = { IDLE, CELL, REOFFER, REOPEN, RECOUNT, UNSLEEP, WAKE, WAKE_MORE, REPLACE };
#ifdef RECOVERS_ANY
#define WAS_ITS(l_) ((l_) > CLOSED && (l_) < OPEN)
#else
#define WAS_ITS(l_) ((l_) == g + 1)
#endif
#ifdef SAYS_LOADED
#define REOPENED LOADED
#else
#define REOPENED OPEN
#endif

inline found_dead(g_) { if :: (g_) < PW -> pc = CELL :: else -> pc = UNSLEEP fi; g = g_ }

proctype supervisor() {
    mtype pc = IDLE;
    byte g, i;
    do
    :: d_step { pc == IDLE && !stop && w[0].pc == DEAD -> found_dead(0) }
#if WORKERS > 1
    :: d_step { pc == IDLE && !stop && w[1].pc == DEAD -> found_dead(1) }
#endif
#if WORKERS > 2
    :: d_step { pc == IDLE && !stop && w[2].pc == DEAD -> found_dead(2) }
#endif
#if WORKERS > 3
    :: d_step { pc == IDLE && !stop && w[3].pc == DEAD -> found_dead(3) }
#endif
    /* dlpi_part_recover */
    :: d_step { pc == CELL -> /* Q1 */
#ifdef NO_REOPEN
            i = C - 1;
#else
            if :: WAS_ITS(low[i]) -> pc = REOFFER :: else fi;
#endif
            if
            :: pc == CELL -> i++; if :: i == C -> i = 0; pc = RECOUNT :: else fi
            :: else
            fi
        }
    :: d_step { pc == REOFFER -> /* Q3; dlpi_input_offer */
#ifndef REOPENS_WITHOUT_BIT
            may = may | 1 << i;
#endif
            pc = REOPEN
        }
    :: d_step { pc == REOPEN -> /* Q1 */
            low[i] = REOPENED;
            i++;
            if :: i == C -> i = 0; pc = RECOUNT :: else -> pc = CELL fi
        }
    :: d_step { pc == RECOUNT -> /* Q2 */
#ifndef NO_RECOUNT
            loads++;
#endif
            pc = UNSLEEP
        }
    /* dlpi_recover */
    :: d_step { pc == UNSLEEP -> /* B1 */
#ifndef WAKE_BIT_STAYS
            mask = mask & ~(1 << g);
#endif
            if
            :: g >= PW && g < PW + IW -> /* what dlpi_recover_slot comes to */
                for (i : 0 .. SLOTS - 1) {
                    if
                    :: own[i] == g + 1 && ready[i] < seq[i] -> own[i] = 0
                    :: else
                    fi
                }
                i = 0
#ifdef INPLACE
            :: g == MAPPER -> /* whatever it was at may be half changed */
                for (i : 0 .. SLOTS - 1) {
                    if
                    :: seq[i] > 0 && ready[i] == seq[i] && done[i] < seq[i] -> send_back(i)
                    :: else
                    fi
                }
                i = 0
#endif
            :: else
            fi;
#ifdef WAKES_NOBODY
            pc = REPLACE
#else
            pc = WAKE
#endif
        }
    :: d_step { pc == WAKE -> bump_wake(3); pc = WAKE_MORE }
    :: d_step { pc == WAKE_MORE -> wake_feeder(); wake_caller(); pc = REPLACE }
    :: d_step { pc == REPLACE -> w[g].pc = LOOK; g = 0; pc = IDLE }
    :: stop && pc == IDLE -> break
    od
}

init {
    byte i;
    atomic {
        for (i : 0 .. WORKERS - 1) { w[i].pc = LOOK; w[i].stale = 1 }
        for (i : 0 .. PW - 1) { run loader(i) }
        for (i : PW .. PW + IW - 1) { run fetcher(i) }
#ifdef INPLACE
        run mapper(MAPPER);
#endif
        run feeder();
#if DEATHS > 0
        run supervisor();
        run killer();
#endif
        run caller();
        i = 0
    }
}
