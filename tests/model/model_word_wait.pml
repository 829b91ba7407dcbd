/* To sleep on a word by mutexes and conditions (dlpipe.h, >>impl-word-wait), under the masks that
   say who sleeps (>>impl-sleepers). Checked: no wake-up is lost, a sleep needs no end by time, and
   a waker touches no record that its sleeper has left.

   Two sleepers share a bucket. They sleep on one word, with a bit each (WORDS 1), or each on a word
   of its own (WORDS 2). Each word has a waker. It publishes N items, each for some sleeper of its
   word, and wakes that sleeper if the mask shows it. When all items are taken, a waker stops all.

   Memory. A step is one access of a shared word, in one order for all: these accesses are
   sequentially consistent in dlpipe.h. But the compare of a wait is relaxed (WW1). It may read any
   value from the one that the thread must know up to the newest one. What a thread must know comes
   with locks: an unlock gives away what its thread knows of the words, and a lock takes it.

     N, WORDS      as above
     TIMES_OUT     a sleep may end by its time, whenever it likes
     SPURIOUS      a condition may return without a signal
   Mutants
     PLAIN_LOCK    a lock gives no order of memory
     WAKES_FIRST   the waker changes the word behind its wake
     NO_COMPARE    the wait does not compare the word
     EARLY_COMPARE ... compares it in front of the lock
     LATE_JOIN     ... gives the lock back between compare and join
     NO_LOCK       the waker does not lock the bucket
     LATE_SIGNAL   ... signals behind the lock
     ANY_BITS      ... looks at no bits
     ANY_WORD      ... looks at no words
     STAYS         a sleeper whose time is over stays in the list
     LEAVES_ALWAYS ... leaves the list also if a waker took it out
     BEGINS_FIRST  a thread says that forks empty the table before it has asked for it */

#ifndef N
#define N 2
#endif
#ifndef WORDS
#define WORDS 1
#endif
#define ALL 2
#if WORDS == 1
#define WORD_OF(s) 0
#define BITS_OF(s) (1 + (s))
#else
#define WORD_OF(s) (s)
#define BITS_OF(s) 1
#endif
#define ALL_BITS 3

byte word[WORDS];  /* newest value; a value is the number of changes before it */
byte items[ALL];   /* published for a sleeper, not taken */
byte mask[WORDS];  /* who sleeps, or is about to */
byte ended;    /* wakers */
bit stop;

bit locked;        /* the bucket */
byte known[WORDS]; /* values that its next owner must know */
byte list[ALL];    /* sleepers + 1, in order of arrival */
byte in_list;
bit alive[ALL], woken[ALL], asleep[ALL];
bit begun, asked; /* WW2, and what it says */

/* Take a thread's number out of the list; `there` says if it was there. */
inline take_out(who, there) {
    there = false;
    i = 0;
    do
    :: i < in_list ->
        if
        :: there -> list[i - 1] = list[i]
        :: !there && list[i] == who + 1 -> there = true
        :: else
        fi;
        i++
    :: else -> break
    od;
    if
    :: there -> in_list--; list[in_list] = 0
    :: else
    fi;
    i = 0
}

inline begin() {
    if
    :: begun -> skip
    :: else ->
#ifdef BEGINS_FIRST
        begun = 1;
        asked = 1
#else
        asked = 1;
        begun = 1
#endif
    fi
}

/* Unlock the bucket. In a d_step. */
inline give(w, view) {
    assert(locked);
    if
    :: view > known[w] -> known[w] = view
    :: else
    fi;
    locked = 0
}
inline give_back(w, view) {
    d_step { give(w, view) }
}

/* Know what the lock's last owners knew. */
inline learn(w, view) {
#ifndef PLAIN_LOCK
    if
    :: known[w] > view -> view = known[w]
    :: else
    fi
#else
    skip
#endif
}

/* dlpi_word_wait: sleep while the word is `expect`. view: the oldest value that may be read. */
inline wait_on(me, w, expect, view) {
    begin();
#ifdef EARLY_COMPARE
    atomic {
        seen = view;
        do
        :: seen < word[w] -> seen++
        :: break
        od;
        view = seen
    }
#endif
    atomic {
        !locked -> locked = 1;
        assert(asked);
        learn(w, view)
    }
#ifdef NO_COMPARE
    seen = expect;
#elif !defined(EARLY_COMPARE)
    atomic { /* WW1 */
        seen = view;
        do
        :: seen < word[w] -> seen++
        :: break
        od;
        view = seen
    }
#endif
#ifdef LATE_JOIN
    give_back(w, view);
    atomic { !locked -> locked = 1; learn(w, view) }
#endif
    if
    :: seen != expect -> give_back(w, view)
    :: else ->
        d_step {
            alive[me] = 1;
            woken[me] = 0;
            list[in_list] = me + 1;
            in_list++
        }
        late = false;
        do
        :: woken[me] || late -> break
        :: else ->
            d_step { asleep[me] = 1; give(w, view) }
            if
            :: !asleep[me]
#ifdef SPURIOUS
            :: asleep[me] = 0
#endif
#ifdef TIMES_OUT
            :: asleep[me] = 0; late = true
#endif
            fi;
            atomic { !locked -> locked = 1; learn(w, view) }
        od;
#ifdef STAYS
#define LEAVES false
#elif defined(LEAVES_ALWAYS)
#define LEAVES true
#else
#define LEAVES !woken[me]
#endif
        if
        :: LEAVES ->
            d_step { take_out(me, there); assert(there) }
        :: else
        fi;
        alive[me] = 0; /* nobody may touch the record behind the unlock */
        give_back(w, view)
    fi
}

proctype sleeper(byte me) {
    byte expect, view, seen, i;
    bool late, there;
    do
    :: atomic { items[me] > 0 -> items[me]-- }
    :: stop && items[me] == 0 -> break
    :: !stop && items[me] == 0 ->
        d_step { expect = word[WORD_OF(me)]; view = expect } /* B1 */
        mask[WORD_OF(me)] = mask[WORD_OF(me)] | BITS_OF(me); /* B1 */
        if
        :: items[me] > 0 || stop /* the last look */
        :: else -> wait_on(me, WORD_OF(me), expect, view)
        fi;
        d_step { expect = 0; view = 0; seen = 0; late = false; there = false }
        mask[WORD_OF(me)] = mask[WORD_OF(me)] & (ALL_BITS - BITS_OF(me)) /* B1 */
    od
}

/* dlpi_word_wake: wake n sleepers of the word with one of these bits. view: the word as the waker
   has left it. */
inline wake_on(w, n, bits, view) {
    begin();
#ifndef NO_LOCK
    atomic { !locked -> locked = 1; assert(asked) }
#endif
    d_step {
        left = n;
        k = 0;
        do
        :: k < in_list && left > 0 ->
            s = list[k] - 1;
            if
#ifdef ANY_BITS
            :: WORD_OF(s) == w ->
#elif defined(ANY_WORD)
            :: (BITS_OF(s) & bits) != 0 ->
#else
            :: WORD_OF(s) == w && (BITS_OF(s) & bits) != 0 ->
#endif
                assert(alive[s]);
                take_out(s, there);
                woken[s] = 1;
                left--;
#ifdef LATE_SIGNAL
                signals[s] = 1
#else
                asleep[s] = 0
#endif
            :: else -> k++
            fi
        :: else -> break
        od;
        k = 0;
        s = 0;
        left = 0;
        there = false
    }
#ifndef NO_LOCK
    give_back(w, view);
#endif
#ifdef LATE_SIGNAL
    do
    :: k < ALL ->
        d_step {
            assert(!signals[k] || alive[k]);
            if
            :: signals[k] -> asleep[k] = 0; signals[k] = 0
            :: else
            fi;
            k++
        }
    :: else -> k = 0; break
    od;
    skip
#endif
}

/* Change the word, and wake. */
inline ring(w, n, bits, view) {
#ifdef WAKES_FIRST
    wake_on(w, n, bits, view);
    word[w]++
#else
    d_step { word[w]++; view = word[w] }
    wake_on(w, n, bits, view)
#endif
}

proctype waker(byte w) {
    byte item, bits, view, left, k, s, i;
    bool there;
#ifdef LATE_SIGNAL
    bit signals[ALL];
#endif
    do
    :: item < N ->
        item++;
        atomic { /* the publication */
            if
            :: WORD_OF(0) == w -> s = 0
            :: WORD_OF(1) == w -> s = 1
            fi;
            items[s]++;
            bits = BITS_OF(s);
            s = 0
        }
        bits = bits & mask[w]; /* B1 */
        d_step { bits = bits & mask[w]; mask[w] = mask[w] & (ALL_BITS - bits) } /* B1 */
        if
        :: bits != 0 -> ring(w, 1, bits, view); d_step { bits = 0; view = 0 }
        :: else
        fi
    :: else -> break
    od;
    skip; /* a break may not lead to a d_step */
    d_step { ended++; left = ended; view = word[w] }
    if
    :: left == WORDS ->
        (items[0] == 0 && items[1] == 0) -> stop = 1;
        ring(0, ALL, ALL_BITS, view)
#if WORDS == 2
        ;
        view = word[1];
        ring(1, ALL, ALL_BITS, view)
#endif
    :: else
    fi
}

init {
    byte i;
    atomic {
        do
        :: i < WORDS -> run waker(i); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < ALL -> run sleeper(i); i++
        :: else -> break
        od
    }
}
