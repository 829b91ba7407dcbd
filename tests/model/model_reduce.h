/* Orders of steps that come to the same are tried once: part of model.h, used where a scenario sets
   model.reduce.

   Two steps of different threads are independent if neither writes a place that the other uses (nor
   one wakes where the other goes to sleep): done in either order they lead to the same state, since
   a load, a store and a rmw change only their own place, their thread's view and that place's
   newest message. What a step uses is taken down while it is made: its access, what the checks
   behind it look at (model_touch), and the place of a store that it begins and that may become
   visible later.

   1. Preemptions. Thread A could go on with step X, and others are let in instead, until A goes on
   (which is with X). If none of their steps until then depends on X, the same comes of letting A
   make X first: with no more preemptions, as each switch is where it was or, if A sleeps after X,
   is none. So A goes on first, as far as it can; and others are let in before X only if X depends
   on a step that they could make from after X on while A makes none. That is known then: a sum of
   such steps is kept for each state and each thread that rests (model_sum). By induction from the
   end it holds each step that any run within the bound could make, also of runs that were left
   out: those have the same steps in another order. A state that was met before, but is not done
   with (a cycle), counts as if all could be done from there.

   2. Deaths. A thread that may die at any step and is not let go on until others have made theirs
   could as well have died before them (its death uses nothing but a store of its own that waits,
   and, if it sleeps, its place among those that a wake-up may go to). So it dies right after a step
   of its own, after a wake-up, or not before the next; a switch that its death ends is none.

   3. Stores that wait. A store of thread A that may become visible later, while A goes on, does so
   at once or right behind a step of another thread that uses its place: made visible between, it
   could as well be earlier, up to the last such step. (A's own steps do not see it: those that use
   the place, release or call the system have it made visible first.) So it is decided when it is
   begun and after each such step. If A comes to where it must be visible, and none has used the
   place, the run is the one in which it was visible at once, and ends here.

   That they leave out nothing: model_rules.c has a scene for each, and model.c and model_slots.c
   compare the final states of theirs with those of all orders. That these would tell: with
   model_broken (-DMODEL_BROKEN=N) a rule leaves out more than it may. */
#ifndef MODEL_REDUCE_H
#define MODEL_REDUCE_H

#ifndef MODEL_BROKEN
#define MODEL_BROKEN 0
#endif
/* 1: others are never let in before who can go on; 2: who was woken does not die before its next
   step; 3: whether a store that waits becomes visible is decided once; 4: nobody dies once others
   have made a step; 5: no store waits. */
static int model_broken = MODEL_BROKEN;

/* Places that are used: bits of atoms; above them what a scenario's checks use beside. */
typedef struct model_uses {
    uint64_t reads, writes, sleeps; /* sleeps: futex words waited at or woken */
} model_uses;

enum { M_FREE_BIT = 56 }; /* the first that scenarios may use */
_Static_assert(MODEL_ATOMS <= M_FREE_BIT, "a bit for each atom");

/* Of the step that is made now. */
static model_uses model_used;
static int model_used_atom; /* whose messages it looked at or added to; -1: none, M_ATOMS: all */

static void model_touch(uint64_t reads, uint64_t writes) {
    model_used.reads |= reads;
    model_used.writes |= writes;
}

static void model_add_uses(model_uses *to, const model_uses *more) {
    to->reads |= more->reads;
    to->writes |= more->writes;
    to->sleeps |= more->sleeps;
}

static int model_dependent(const model_uses *a, const model_uses *b) {
    return (a->writes & (b->reads | b->writes)) != 0 || (a->reads & b->writes) != 0 ||
           (a->sleeps & b->sleeps) != 0;
}

static void model_use_all(void) {
    model_touch(UINT64_MAX, UINT64_MAX);
    model_used.sleeps = UINT64_MAX;
    model_used_atom = M_ATOMS;
}

/* What a step uses, before it is made. */
static void model_begin_step(int thread, int how) {
    const model_thread *t = &world.thread[thread];
    const model_op *op = how == M_FLUSH ? &t->waiting : &t->op;
    uint64_t bit = UINT64_C(1) << op->atom;
    memset(&model_used, 0, sizeof model_used);
    model_used_atom = -1;
    if (how == M_KILL) {
        if (t->waiting.kind == M_STORE) model_touch(0, UINT64_C(1) << t->waiting.atom);
        if (t->asleep) model_used.sleeps = bit;
        return;
    }
    if (how == M_POSTPONE) return;
    if (how == M_TIMEOUT || how == M_SPURIOUS || (!how && op->kind == M_BARRIER)) {
        model_use_all();
        return;
    }
    switch (op->kind) {
    case M_WAIT: model_used.sleeps = bit; /* fall through */
    case M_LOAD: model_touch(bit, 0); break;
    case M_WAKE: model_used.sleeps = bit; return;
    case M_POLL: model_use_all(); return; /* it is let go on by what others store anywhere */
    case M_HERE:
    case M_END: return;
    default: model_touch(0, bit);
    }
    model_used_atom = op->atom;
}

/* Others' stores that wait at the place may become visible now. Who could have died before the step
   need not die after it. */
static void model_end_step(int thread, int is_free) {
    if (model.scenario->mortal && !is_free) {
        model_thread *t = &world.thread[model.scenario->mortal - 1];
        int others = model.scenario->mortal - 1 != thread || (model_broken == 4 && t->waited);
        t->waited = t->waited != 2 && others;
    }
    for (int i = 0; model_used_atom >= 0 && i < M_THREADS; i++) {
        model_thread *t = &world.thread[i];
        if (i == thread || !t->started || t->ended) continue;
        if (t->waiting.kind == M_STORE) {
            if (model_used_atom != M_ATOMS && model_used_atom != t->waiting.atom) continue;
            t->touched = 1;
            t->fresh = model_broken != 3;
        } else if (t->op.order & M_ALIKE &&
                   (model_used_atom == M_ATOMS || model_used_atom == t->op.atom)) {
            t->op.order &= ~M_ALIKE;
        }
    }
}

/* ---- sums ---- */

/* For each thread: what others could do, from a state on, while it makes no step. */
typedef struct model_sum {
    model_uses of[M_THREADS];
} model_sum;

static struct {
    model_sum *sum;  /* by number, 1: everything */
    uint32_t *index; /* a hash table of numbers */
    uint32_t n, size;
} model_sums;

static uint32_t *model_sum_at(const model_sum *s) {
    uint64_t i = model_hash(11, s, sizeof *s) & (model_sums.size - 1);
    while (model_sums.index[i] && memcmp(&model_sums.sum[model_sums.index[i]], s, sizeof *s) != 0)
        i = (i + 1) & (model_sums.size - 1);
    return &model_sums.index[i];
}

static void model_sums_grow(void) {
    uint32_t size = model_sums.size ? model_sums.size * 2 : 1 << 12;
    model_sums.sum = (model_sum *)realloc(model_sums.sum, (size / 2 + 1) * sizeof(model_sum));
    free(model_sums.index);
    model_sums.index = (uint32_t *)calloc(size, sizeof *model_sums.index);
    if (!model_sums.sum || !model_sums.index) abort();
    model_sums.size = size;
    for (uint32_t i = 1; i <= model_sums.n; i++) *model_sum_at(&model_sums.sum[i]) = i;
}

static uint32_t model_sum_number(const model_sum *s) {
    if (model_sums.n + 2 >= model_sums.size / 2) model_sums_grow();
    uint32_t *at = model_sum_at(s);
    if (!*at) {
        model_sums.sum[++model_sums.n] = *s;
        *at = model_sums.n;
    }
    return *at;
}

static void model_sums_begin(void) {
    model_sum all;
    memset(&all, 255, sizeof all);
    model_sums.n = 0;
    if (model_sums.index) memset(model_sums.index, 0, model_sums.size * sizeof *model_sums.index);
    model_sum_number(&all);
}
#endif
