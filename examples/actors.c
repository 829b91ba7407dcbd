/* actors: several processes play a small game and push what they see; a learner takes batches.

   The game: a walk on a grid of 6 x 6 from one corner to the other, around a wall. Each step costs
   1, the goal gives 20, and the game ends after 60 steps. The learner keeps a table of values
   (Q-learning, Watkins 1989) in memory that the actors read, so they play better as it learns. One
   actor is killed on the way, and a successor takes its place. Each pushed step is in one batch. A
   step that the killed actor had only begun is in no batch.

     actors [ACTORS [BATCHES]]    3 actors, 600 batches of 64 steps

   cc -O2 actors.c -lpthread */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIDE = 6, CELLS = SIDE * SIDE, MOVES = 4, GOAL = CELLS - 1, MOST_STEPS = 60, BATCH = 64 };

typedef struct table { /* read by actors while the learner writes: a value that is a little old */
    float q[CELLS][MOVES];
} table;

/* ---- the game ---- */

static int is_wall(int cell) { return cell % SIDE == 3 && cell / SIDE < SIDE - 1; }

static int move(int cell, int way) {
    static const int dx[MOVES] = {1, 0, -1, 0}, dy[MOVES] = {0, 1, 0, -1};
    int x = cell % SIDE + dx[way], y = cell / SIDE + dy[way], to = y * SIDE + x;
    return x < 0 || y < 0 || x >= SIDE || y >= SIDE || is_wall(to) ? cell : to;
}

static int best(const table *t, int cell) {
    int way = 0;
    for (int m = 1; m < MOVES; m++)
        if (t->q[cell][m] > t->q[cell][way]) way = m;
    return way;
}

/* Steps to the goal by the table alone; MOST_STEPS: it is not reached. */
static int walk(const table *t) {
    int cell = 0, steps = 0;
    for (; cell != GOAL && steps < MOST_STEPS; steps++) cell = move(cell, best(t, cell));
    return steps;
}

/* ---- an actor's process ---- */

typedef struct step { /* an item: one field of five numbers */
    int32_t cell, way, to, is_over, actor;
} step;

static int act(const dlp_push *push, const table *t, uint32_t number, uint64_t seed) {
    dlp_pusher *out = NULL;
    dlp_error err;
    int rc = dlp_pusher_open(&out, &(dlp_pusher_desc){.push = push, .number = number}, &err);
    if (rc == DLP_STOPPED) return 0; /* it was started too late */
    if (rc != DLP_OK) return fprintf(stderr, "actor: %s\n", err.message), 1;
    for (uint64_t n = 0; rc == DLP_OK;) {
        int cell = 0;
        for (int k = 0; k < MOST_STEPS && cell != GOAL && rc == DLP_OK; k++, n++) {
            uint64_t r = dlp_hash(seed, n, 0, 0);
            int way = r % 5 == 0 ? (int)(r >> 33) % MOVES : best(t, cell), to = move(cell, way);
            step s = {cell, way, to, to == GOAL, (int32_t)dlp_pusher_number(out)};
            const void *data[1] = {&s};
            rc = dlp_pusher_push(out, data, DLP_FOREVER); /* waits while the lane is full */
            cell = to;
        }
    }
    dlp_pusher_close(out);
    return rc != DLP_STOPPED; /* the learner wants no more */
}

static pid_t start_actor(const dlp_push *push, const table *t, uint32_t number, uint64_t seed) {
    pid_t pid = fork();
    if (pid == 0) _exit(act(push, t, number, seed));
    return pid;
}

/* ---- the learner ---- */

static void learn(table *t, const step *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float next = s[i].is_over ? 20 : 0.97f * t->q[s[i].to][best(t, s[i].to)];
        float *q = &t->q[s[i].cell][s[i].way];
        *q += 0.2f * (next - 1 - *q);
    }
}

int main(int argc, char **argv) {
    int actors = argc > 1 ? atoi(argv[1]) : 3, most = argc > 2 ? atoi(argv[2]) : 600, bad = 0;
    table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    dlp_field field = {.name = "step", .dtype = DLP_I32, .ndim = 1, .shape = {5}};
    dlp_push_desc lanes = {.fields = &field, .n_fields = 1, .writers = (uint32_t)actors};
    dlp_node nodes[] = {{.name = "steps", .verb = DLP_PUSH},
                        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = BATCH}}};
    dlp_push **push = &nodes[0].push.source;
    uint64_t of[17] = {0};
    pid_t pids[17] = {0};
    dlp_pipe *pipe;
    dlp_batch *batch;
    dlp_error err;
    int n = 0, status;
    if (t == MAP_FAILED || actors < 1 || actors > 16) return 1;
    if (dlp_push_open(push, &lanes, &err) != DLP_OK ||
        dlp_pipe_open(&pipe, DLP_NODES(nodes), NULL, &err) != DLP_OK)
        return fprintf(stderr, "%s\n", err.message), 1;
    for (int i = 1; i <= actors; i++) pids[i] = start_actor(*push, t, (uint32_t)i, (uint64_t)i);
    while (n < most && dlp_pipe_next(pipe, &batch) == DLP_OK) {
        const step *s = batch->fields[0].data;
        learn(t, s, batch->count);
        for (uint32_t i = 0; i < batch->count; i++) of[s[i].actor <= actors ? s[i].actor : 0]++;
        dlp_pipe_release(pipe, batch);
        if (++n % (most / 6 ? most / 6 : 1) == 0)
            printf("batch %4d: the goal is %d steps away\n", n, walk(t));
        if (n == most / 3) { /* an actor dies, whatever it is at */
            kill(pids[1], SIGKILL);
            waitpid(pids[1], &status, 0);
            printf("actor 1 was killed; a successor goes on in its lane\n");
            pids[1] = start_actor(*push, t, 1, 1000);
        }
    }
    dlp_push_stop(*push);
    for (int i = 1; i <= actors; i++) {
        bad |= waitpid(pids[i], &status, 0) != pids[i] || status != 0;
        printf("actor %d: %llu steps\n", i, (unsigned long long)of[i]);
    }
    if (n < most) bad = !fprintf(stderr, "%s\n", dlp_pipe_error(pipe)->message) || 1;
    printf("%d batches, the goal is %d steps away\n", n, walk(t));
    bad |= dlp_pipe_close(pipe) != DLP_OK || dlp_push_close(*push) != DLP_OK || of[0] > 0;
    return bad || walk(t) == MOST_STEPS;
}
