/* The checker itself: small scenes of which is known in how they end. Orders that come to the same
   may be left out (model_reduce.h), final states may not: each scene has the same with and without.
   For each rule that leaves out there is a scene that loses some when the rule leaves out more than
   it may (model_broken). And faults that are there are found. */
#include "model.h"

#ifdef MODEL_UNAVAILABLE
int main(void) {
    printf("unavailable: %s\n", MODEL_UNAVAILABLE);
    return 78;
}
#else

/* All that the threads use; what they have seen is a part of the final state. */
static struct {
    uint32_t x, y, z, word;
    uint32_t seen[4];
} w;

static uint64_t mix_seen(uint64_t h) { return model_hash(h, w.seen, sizeof w.seen); }

static void setup(void) {
    model_list_atom("x", &w.x, 4, 0);
    model.atom[0].many = 1;
    model_list_atom("y", &w.y, 4, 0);
    model_list_atom("z", &w.z, 4, 0);
    model_list_atom("word", &w.word, 4, 0);
}

/* ---- rule 1: who goes on first ---- */

/* Another's stores between two of its looks. */
static void looks_twice(void) {
    w.seen[0] = DLPI_LOAD_ACQ(&w.x);
    w.seen[1] = DLPI_LOAD_ACQ(&w.y);
}
static void stores_both(void) {
    DLPI_STORE_SEQ(&w.y, 1u);
    DLPI_STORE_SEQ(&w.x, 1u);
}

/* ---- rule 2: deaths ---- */

/* One wake-up for two that sleep: who gets it may die before it has said so. */
static void sleeps_and_says(void) {
    (void)dlpi_futex_wait(&w.word, 0, 1, UINT64_MAX, 1);
    w.seen[0] = 1;
}
static void sleeps(void) { (void)dlpi_futex_wait(&w.word, 0, 1, UINT64_MAX, 1); }
static void wakes_one(void) {
    DLPI_STORE_SEQ(&w.word, 1u); /* nobody goes to sleep from now on */
    dlpi_futex_wake(&w.word, 1, 1, 1);
}
static void comes_after(void) { DLPI_STORE_SEQ(&w.x, 1u); }

/* ---- rule 3: stores that wait ---- */

/* x waits, z overtakes it; the other sees z, then x not, then x, and stores y; y is seen before
   anything makes x visible: it became so between. */
static void store_waits(void) {
    DLPI_STORE_RLX(&w.x, 1u);
    DLPI_STORE_RLX(&w.z, 1u);
    w.seen[0] = DLPI_LOAD_ACQ(&w.y);
}
static void looks_at_it(void) {
    w.seen[1] = DLPI_LOAD_ACQ(&w.z);
    w.seen[2] = DLPI_OR_SEQ(&w.x, 0u); /* nothing old */
    w.seen[3] = DLPI_OR_SEQ(&w.x, 0u);
    DLPI_STORE_SEQ(&w.y, 1u);
}

/* ---- what a state is ---- */

/* Who waits for x to change and has seen the newest waits for ever; who knows the newest, by y, but
   has seen the one before goes on: another state. */
static void stores_x_then_y(void) {
    DLPI_STORE_RLX(&w.x, 1u);
    DLPI_STORE_REL(&w.y, 1u);
}
static void waits_for_a_change(void) {
    (void)DLPI_LOAD_RLX(&w.x);
    while (DLPI_LOAD_ACQ(&w.y) == 0) model_poll(1, model_bit(&w.y));
    model_poll(2, model_bit(&w.x));
}

typedef struct scene {
    model_scenario scenario;
    int bound, daemons;
    uint64_t ends; /* final states; 0: it has a fault, which has to be found */
    int noticed;   /* bits: with model_broken = bit it ends in fewer */
} scene;

#define NOTICED(n) (1 << (n))

static const scene scenes[] = {
    {{"looks_twice__all_that_may_be_seen", setup, {looks_twice, stores_both, NULL, NULL}, NULL, 0},
     2,
     0,
     3,
     NOTICED(1)},
    {{"one_wake_up__who_gets_it_dies",
      setup,
      {sleeps_and_says, comes_after, wakes_one, sleeps},
      NULL,
      1},
     0,
     1 << 3,
     6,
     NOTICED(1) | NOTICED(2) | NOTICED(4)},
    {{"store_waits__visible_between", setup, {store_waits, looks_at_it, NULL, NULL}, NULL, 0},
     0,
     0,
     12,
     NOTICED(1) | NOTICED(3) | NOTICED(5)},
    {{"poll__newest_is_known_or_seen",
      setup,
      {stores_x_then_y, waits_for_a_change, NULL, NULL},
      NULL,
      0},
     0,
     0,
     0,
     0},
};

static int try_one(const scene *s, int reduce, int broken) {
    model.bound = s->bound;
    model.daemons = s->daemons;
    model.reduce = reduce;
    model_broken = broken;
    int r = model_run(&s->scenario, s->ends > 0);
    model_broken = 0;
    return r;
}

static int check(const scene *s) {
    int bad = try_one(s, 0, 0) != (s->ends == 0), lost = 0;
    uint64_t states = model.states, all = model_outcomes.all;
    if (s->ends) bad |= model_outcomes.n != s->ends;
    bad |= try_one(s, 1, 0) != (s->ends == 0);
    if (s->ends) bad |= model_outcomes.n != s->ends || model_outcomes.all != all;
    printf("%-40s %4llu states, reduced %4llu; %2llu final ones", s->scenario.name,
           (unsigned long long)states, (unsigned long long)model.states,
           (unsigned long long)model_outcomes.n);
    for (int broken = 1; s->ends && broken <= 5; broken++)
        if (try_one(s, 1, broken) || model_outcomes.n < s->ends) lost |= NOTICED(broken);
    bad |= lost != s->noticed;
    printf(", broken rules noticed: %x %s\n", (unsigned)lost >> 1, bad ? "FAILED" : "");
    return bad;
}

int main(void) {
    int bad = 0;
    model.memory = (unsigned char *)&w;
    model.memory_bytes = sizeof w;
    model.membarrier = 1;
    model.mix_more = mix_seen;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) bad += check(&scenes[i]);
    printf("model_rules: %s\n", bad ? "FAILED" : "passed");
    return bad != 0;
}
#endif
