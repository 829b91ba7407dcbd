/* Small scenarios of model.h one by one, and each access of the header that they meet made weaker,
   or late, in turn: what model_links.c and model_subscribers.c share. Before it: `trials`, of which
   each has a scenario, and try_one; `needless`. */
#ifndef MODEL_MUTANTS_H
#define MODEL_MUTANTS_H

typedef struct needless_mutant {
    const char *func, *access, *place;
    int how;
    const char *why;
} needless_mutant;

typedef struct trial {
    model_scenario scenario;
    const void *shape;
    int large; /* 1: not for mutants; 2: for SOAK=1 alone */
} trial;

typedef struct trial_list {
    const char *name;
    const trial *trials;
    int n;
    int (*try_one)(const trial *t, int loud);
    const char *const *of; /* beginnings of the functions that are looked at */
    const needless_mutant *needless;
    int n_needless;
} trial_list;

static double seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int check_all(const trial_list *l, const char *only) {
    int bad = 0, count = 0;
    double begin = seconds();
    for (int i = 0; i < l->n; i++) {
        const trial *t = &l->trials[i];
        double from = seconds();
        if (only ? strncmp(only, t->scenario.name, strlen(only)) != 0
                 : t->large > !getenv("SHORT") && !getenv("SOAK"))
            continue;
        int r = l->try_one(t, 1);
        bad += r;
        count++;
        printf("%-55s %8llu states %9llu steps %6llu ends %6.2f s %s\n", t->scenario.name,
               (unsigned long long)model.states, (unsigned long long)model.steps,
               (unsigned long long)model.ends, seconds() - from, r ? "FAILED" : "");
        fflush(stdout);
    }
    printf("%d scenarios, %.1f s; no bound on preemptions or steps\n", count, seconds() - begin);
    return bad || count == 0;
}

static const char *const how_names[] = {"as it is", "relaxed", "", "late"};
static int argued[64]; /* of needless */

static const char *why_needless(const trial_list *l, int site, int how) {
    for (int i = 0; i < l->n_needless; i++) {
        const needless_mutant *n = &l->needless[i];
        if (n->how != how || strcmp(n->func, model.site[site].func) != 0 ||
            strcmp(n->access, model.site[site].name) != 0 ||
            !model_same_place(n->place, model.site[site].place))
            continue;
        argued[i] = 1;
        return n->why;
    }
    return NULL;
}

static struct {
    uint64_t states;
    uint8_t met[M_SITES];
} tried[64]; /* without a mutant */

/* Writes whose result nobody reads may come later. */
static int is_mutant(const trial_list *l, int site, int how) {
    model_kind kind = model.site[site].kind;
    int of = 0, met = 0;
    for (int k = 0; k < l->n; k++) met |= tried[k].met[site];
    for (int i = 0; met && l->of[i]; i++)
        of |= strncmp(model.site[site].func, l->of[i], strlen(l->of[i])) == 0;
    if (!of || !model.site[site].place) return 0;
    if (how == M_RELAXED) return model.site[site].order != M_RLX;
    return kind == M_STORE || kind == M_OR || kind == M_AND || kind == M_ADD;
}

/* The scenario, of the small ones, that notices the mutant. */
static const trial *noticed(const trial_list *l, int site, int how) {
    const trial *by = NULL;
    model.site[site].weak = how;
    for (int k = 0; k < l->n && !by; k++) {
        if (!tried[k].met[site]) continue;
        model.most_states = 20 * tried[k].states + 20000;
        if (l->try_one(&l->trials[k], 0) && !model.gave_up) by = &l->trials[k];
    }
    model.site[site].weak = M_AS_IS;
    model.most_states = 0;
    return by;
}

static int try_all(const trial_list *l) {
    for (int k = 0; k < l->n; k++) {
        for (int i = 0; i < M_SITES; i++) model.site[i].met = 0;
        if (l->trials[k].large) continue;
        if (l->try_one(&l->trials[k], 0)) return 1;
        tried[k].states = model.states;
        for (int i = 0; i < M_SITES; i++) tried[k].met[i] = (uint8_t)model.site[i].met;
    }
    return 0;
}

/* Returns whether it is neither noticed nor argued for. */
static int show_mutant(const trial_list *l, int site, int how, const trial *by) {
    const char *why = by ? NULL : why_needless(l, site, how);
    printf("%-24s %-9s %-10s %-11s ", model.site[site].func, model.site[site].name,
           model.site[site].place, how_names[how]);
    if (by)
        printf("%s: %s\n", by->scenario.name, model.failure);
    else
        printf("%s%s\n", why ? "not needed: " : "NOT CAUGHT", why ? why : "");
    fflush(stdout);
    return !by && !why;
}

static int weaken_all(const trial_list *l) {
    int count = 0, caught = 0, bad = 0;
    double begin = seconds();
    if (try_all(l)) return 1;
    for (int i = 0, sites = model.sites; i < sites; i++) {
        for (int how = M_RELAXED; how <= M_LATE; how += M_LATE - M_RELAXED) {
            const trial *by;
            if (!is_mutant(l, i, how)) continue;
            by = noticed(l, i, how);
            bad += show_mutant(l, i, how, by);
            caught += by != NULL;
            count++;
        }
    }
    for (int i = 0; i < l->n_needless; i++)
        if (!argued[i]) {
            printf("there is no such mutant, or it is noticed: %s %s %s %s\n", l->needless[i].func,
                   l->needless[i].access, l->needless[i].place, how_names[l->needless[i].how]);
            bad++;
        }
    printf("%d mutants, %d caught, %d not needed, %d without a word why not, %.1f s\n", count,
           caught, count - caught - bad, bad, seconds() - begin);
    return bad;
}

static int model_main(const trial_list *l, int argc, char **argv) {
    int weaken = argc > 1 && strcmp(argv[1], "weaken") == 0;
    int bad = weaken ? 0 : check_all(l, argc > 1 ? argv[1] : NULL);
    if (weaken || (argc == 1 && !getenv("SHORT"))) bad += weaken_all(l);
    printf("%s: %s\n", l->name, bad ? "FAILED" : "passed");
    return bad != 0;
}
#endif
