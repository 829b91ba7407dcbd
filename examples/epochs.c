/* What lies between epochs: the same batches in three ways. By one pipe whose workers live for all
   epochs and fetch the next epoch's items before this one's end; by one pipe with set_epoch, which
   fetches nothing of an epoch before the one before is over and the data has been changed (here by
   nothing); and by a pipe for each epoch, whose workers are started again each time, as a loop over
   a DataLoader without persistent workers does. Prints the workers' process ids for each epoch and
   the time lost at each border, side by side, and draws all three.

   epochs [-e epochs] [-w workers] [-i init-ms] [-o DIR]
   cc -O2 epochs.c -lpthread

   init-ms (30): what a worker does before its first item: libraries, connections, files.
   DIR/epochs.svg is the picture of all three, on one axis of time. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include "../dlpipe_shm.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ITEMS = 96, BATCH = 8, EPOCHS = 12, WORKERS = 8, EVENTS = 4096, WAYS = 3 };

static int epochs = 4, workers = 3, init_ms = 30;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void work_us(long us) { /* stands for reading and decoding, and for a training step */
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* ---- the dataset: each item says who fetched it ---- */

static int init(void *user, int worker, void **state) {
    (void)user, (void)worker, (void)state;
    work_us(init_ms * 1000L);
    return 0;
}

static int fetch(void *user, dlp_item *item) {
    uint64_t *x = item->data[0];
    (void)user;
    work_us(1500);
    x[0] = (uint64_t)getpid();
    x[1] = dlp_item_random(item, 0);
    return 0;
}

static int set_epoch(void *user, uint64_t epoch) { /* in this process, between the epochs */
    (void)user, (void)epoch;
    return 0; /* what workers are to see of a change: files, or memory shared before the start */
}

/* ---- one way of running the epochs, and what it came to ---- */

typedef struct lane {
    char name[32];
    dlp_trace_event event[EVENTS]; /* since the run's beginning */
    int n;
} lane;

typedef struct run {
    const char *name;
    uint64_t begin, end, last; /* last: when the epoch's last step was over */
    uint64_t border[EPOCHS];   /* ns from there to the next epoch's first batch */
    uint64_t from[EPOCHS];     /* when that began */
    uint64_t hash;             /* of all items, in their order */
    int pids[EPOCHS][WORKERS], n_pids[EPOCHS];
    lane lanes[1 + WORKERS];
} run;

static dlp_pipe *opened(int64_t until, const dlp_state *from, bool barrier) {
    static const dlp_field field = {"pid, random", DLP_U64, 1, {2}, 0, 0};
    dlp_loader_desc d = {.dataset = {.n_items = ITEMS, .fields = &field, .n_fields = 1},
                         .batch_size = BATCH,
                         .num_workers = workers,
                         .shuffle = 1,
                         .epochs = until,
                         .seed = 5};
    dlp_pipe *p = NULL;
    dlp_error err;
    d.dataset.fetch = fetch;
    d.workers.placement = DLP_PLACE_PROCESSES;
    d.workers.worker_init = init;
    d.pipe.prefetch_factor = 3;
    d.pipe.trace_bytes = 1 << 16;
    d.pipe.resume = from;
    if (barrier) d.pipe.set_epoch = set_epoch;
    if (dlp_loader_open(&p, &d, &err) != DLP_OK) fprintf(stderr, "epochs: %s\n", err.message);
    return p;
}

static void note_pid(run *r, uint64_t epoch, int pid) {
    int i = 0;
    while (i < r->n_pids[epoch] && r->pids[epoch][i] != pid) i++;
    if (i == r->n_pids[epoch] && i < WORKERS) r->pids[epoch][r->n_pids[epoch]++] = pid;
}

/* Batches of a pipe until its end; a step for each. */
static bool drain(run *r, dlp_pipe *p) {
    dlp_batch *b;
    int rc;
    while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) {
        const uint64_t *x = b->fields[0].data;
        if (b->in_epoch == 0 && b->epoch > 0) {
            r->from[b->epoch] = r->last - r->begin;
            r->border[b->epoch] = now_ns() - r->last;
        }
        for (uint32_t i = 0; i < b->count; i++, x += 2) {
            note_pid(r, b->epoch, (int)x[0]);
            r->hash = dlp_hash(r->hash, b->index[i], x[1], 0);
        }
        work_us(5000);
        dlp_pipe_release(p, b);
        r->last = now_ns();
    }
    return rc == DLP_END;
}

/* Add what a pipe that began at start_ns has recorded. */
static void record(run *r, dlp_pipe *p, uint64_t start_ns) {
    for (int i = 0; i <= workers; i++) {
        lane *l = &r->lanes[i];
        int n = dlp_pipe_trace(p, i, l->event + l->n, EVENTS - l->n, l->name);
        for (int k = 0; k < n; k++) {
            l->event[l->n].begin_ns += start_ns - r->begin;
            l->event[l->n++].end_ns += start_ns - r->begin;
        }
    }
}

static bool one_pipe(run *r, bool barrier, dlp_state *at) {
    uint64_t start = r->begin = now_ns();
    dlp_pipe *p = opened(epochs, NULL, barrier);
    bool good = p != NULL;
    for (int e = 0; good && e < epochs; e++)
        good = dlp_pipe_state_at(p, (uint64_t)e, 0, &at[e]) == DLP_OK;
    good = good && drain(r, p);
    if (good) record(r, p, start);
    r->end = now_ns();
    return dlp_pipe_close(p) == DLP_OK && good;
}

static bool a_pipe_each(run *r, const dlp_state *at) { /* the same orders: begun at that epoch */
    r->begin = now_ns();
    for (int e = 0; e < epochs; e++) {
        uint64_t start = now_ns();
        dlp_pipe *p = opened(e + 1, &at[e], false);
        bool good = p != NULL && drain(r, p);
        if (good) record(r, p, start);
        if (dlp_pipe_close(p) != DLP_OK || !good) return false;
    }
    r->end = now_ns();
    return true;
}

/* ---- what is told ---- */

static void print_pids(const run *r) {
    printf("%s\n", r->name);
    for (int e = 0; e < epochs; e++) {
        printf("  epoch %d: workers", e);
        for (int i = 0; i < r->n_pids[e]; i++) printf(" %d", r->pids[e][i]);
        printf("\n");
    }
}

static void print_borders(const run *r) {
    printf("%-24s %14s %14s %14s\n", "lost at the border to", "one pipe", "set_epoch",
           "a pipe each");
    for (int e = 1; e < epochs; e++) {
        printf("%-22s %2d", "epoch", e);
        for (int i = 0; i < WAYS; i++) printf(" %11.2f ms", (double)r[i].border[e] / 1e6);
        printf("\n");
    }
    printf("%-25s", "all epochs");
    for (int i = 0; i < WAYS; i++) printf("%11.2f ms ", (double)(r[i].end - r[i].begin) / 1e6);
    printf("\nsame batches: %s\n", r[0].hash == r[1].hash && r[0].hash == r[2].hash ? "yes" : "NO");
}

static void draw_rect(FILE *f, double x, double y, double w, double h, const char *fill) {
    fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y,
            w < 0.3 ? 0.3 : w, h, fill);
}

static void draw_lane(FILE *f, const lane *l, double y, double width, double scale) {
    static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7"};
    fprintf(f, "<text x=\"92\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", y + 12, l->name);
    draw_rect(f, 100, y, width, 15, "#f1f2f4");
    for (int i = 0; i < l->n; i++) {
        const dlp_trace_event *e = &l->event[i];
        double x = 100 + (double)e->begin_ns * scale;
        double w = (double)(e->end_ns - e->begin_ns) * scale;
        if (e->kind == DLP_TRACE_WORK || e->kind == DLP_TRACE_STEP)
            draw_rect(f, x, y, w, 15, colours[e->epoch % 4]);
    }
}

static void draw_run(FILE *f, const run *r, double y, double scale) {
    fprintf(f, "<text x=\"16\" y=\"%.0f\" font-weight=\"bold\">%s: %.0f ms</text>\n", y - 8,
            r->name, (double)(r->end - r->begin) / 1e6);
    for (int i = 0; i <= workers; i++)
        draw_lane(f, &r->lanes[i], y + 19 * i, (double)(r->end - r->begin) * scale, scale);
    for (int e = 1; e < epochs; e++) {
        double x = 100 + (double)r->from[e] * scale, w = (double)r->border[e] * scale;
        fprintf(f,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"none\" "
                "stroke=\"#333\" stroke-dasharray=\"3 2\"/>\n"
                "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.1f ms</text>\n",
                x, y - 2, w, 19 * (workers + 1), x + w / 2, y + 19 * (workers + 1) + 12,
                (double)r->border[e] / 1e6);
    }
}

static bool draw(const run *r, const char *dir) {
    char path[512];
    uint64_t most = 0;
    double each = 19 * (workers + 1) + 52;
    for (int i = 0; i < WAYS; i++)
        most = r[i].end - r[i].begin > most ? r[i].end - r[i].begin : most;
    snprintf(path, sizeof path, "%s/epochs.svg", dir);
    FILE *f = fopen(path, "w");
    if (f == NULL) return perror(path), false;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"980\" height=\"%.0f\" "
            "font-family=\"Helvetica,Arial,sans-serif\" font-size=\"12\">\n"
            "<rect width=\"980\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"bold\">What lies between "
            "epochs</text>\n<text x=\"16\" y=\"42\" fill=\"#555\">A colour for each epoch: steps, "
            "and below the workers' items. Dashed: from an epoch's last step to the next "
            "one's first batch.</text>\n",
            76 + WAYS * each - 24);
    for (int i = 0; i < WAYS; i++) draw_run(f, &r[i], 76 + i * each, 860.0 / (double)most);
    fprintf(f, "</svg>\n");
    if (fclose(f) != 0) return perror(path), false;
    printf("%s\n", path);
    return true;
}

int main(int argc, char **argv) {
    static run r[WAYS] = {{.name = "one pipe for all epochs"},
                          {.name = "one pipe with set_epoch"},
                          {.name = "a pipe for each epoch"}};
    dlp_state at[EPOCHS];
    const char *dir = NULL;
    int option;
    while ((option = getopt(argc, argv, "e:w:i:o:")) != -1) {
        if (option == 'e') epochs = atoi(optarg);
        if (option == 'w') workers = atoi(optarg);
        if (option == 'i') init_ms = atoi(optarg);
        if (option == 'o') dir = optarg;
        if (option == '?') epochs = 0;
    }
    if (epochs < 1 || epochs > EPOCHS || workers < 1 || workers > WORKERS || init_ms < 0) {
        fprintf(stderr,
                "usage: epochs [-e epochs, 1..%d] [-w workers, 1..%d] [-i init-ms] "
                "[-o DIR]\n",
                EPOCHS, WORKERS);
        return 1;
    }
    if (!one_pipe(&r[0], false, at) || !one_pipe(&r[1], true, at) || !a_pipe_each(&r[2], at))
        return 1;
    for (int i = 0; i < WAYS; i++) print_pids(&r[i]);
    print_borders(r);
    return dir == NULL || draw(r, dir) ? 0 : 1;
}
