/* Sleep and wake-up by a word (dlpi_await_asleep, dlpi_wake_sleeper in dlpipe.h) where wakers die.

   A producer publishes N records and may die before any of its steps; a successor begins once the
   kernel has proved the death, and goes on from the published counter; a consumer sleeps when there
   is nothing. Memory is sequentially consistent here: orders are the business of model.c,
   which runs the header's own code. Checked: the counter never moves back, and every run ends with
   all records taken (an end state that is not a valid one is an error).
   A sleep ends by a wake-up or, when nothing else can happen, by its time-out (100 ms).
     NO_TIMEOUT   by a wake-up alone
     NO_DEATH     nobody dies
     NO_RECHECK   the consumer does not look again before it sleeps
     NO_COMPARE   it sleeps whatever the wake word says by then */

#define N 3

byte tail, head; /* published, taken */
bit sleeper;     /* the wake word's bit */
bit asleep;      /* in the futex */
bit dead;

#ifdef NO_DEATH
#define MAY_DIE skip
#else
#define MAY_DIE if :: skip :: !dead -> dead = 1; goto gone fi
#endif

#ifdef NO_RECHECK
#define COME false
#else
#define COME (tail > head) /* the second look */
#endif

#ifdef NO_COMPARE
#define SLEEP_ANYHOW true
#else
#define SLEEP_ANYHOW false
#endif

/* Publish (LT1), look at the wake word (LB1), take its bit (LB2), wake. One producer at a time. */
proctype producer(bit successor) {
    byte next = tail;
    bit rings;
    do
    :: next < N ->
        MAY_DIE;
        d_step { assert(next >= tail); next++; tail = next }
        MAY_DIE;
        if
        :: sleeper ->
            MAY_DIE;
            d_step { rings = sleeper; sleeper = 0 }
            MAY_DIE;
            if
            :: rings -> asleep = 0
            :: else
            fi
        :: else
        fi
    :: else -> break
    od;
    goto end;
gone:
    run producer(1);
end:
    skip
}

proctype consumer() {
    do
    :: head == N -> break
    :: head < N && tail > head -> head++
    :: head < N && tail == head ->
        sleeper = 1; /* LB3 */
        if
        :: COME -> sleeper = 0
        :: !COME ->
            atomic { /* the futex compares and sleeps in one */
                if
                :: sleeper || SLEEP_ANYHOW -> asleep = 1
                :: else
                fi
            }
            if
            :: !asleep
#ifndef NO_TIMEOUT
            :: timeout -> asleep = 0
#endif
            fi
        fi
    od;
    assert(head == N)
}

init {
    atomic { run producer(0); run consumer() }
}
