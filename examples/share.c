/* One pipe, several programs: a server has the workers and the memory, trainers take its batches.

     share serve NAME [each|one]   serve, until trainers have consumed three epochs
     share take NAME               be a trainer; as many as you like, each in a shell of its own
     share log NAME                each: look at a batch now and then; nobody waits for this one

   each: every trainer gets every batch, in order, as when several models train on the same data.
   one: each batch goes to one trainer; what a trainer held when it was killed goes to another. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include "../dlpipe_shm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ITEMS 10000
#define BATCH 50
#define EPOCHS 3
#define TRAINERS 2 /* the server waits for so many */

static dlp_pipe *pipe_to_stop;

static void on_signal(int sig) {
    (void)sig;
    /* serve, and next in all trainers, return DLP_STOPPED. NOLINTNEXTLINE: made for handlers */
    dlp_pipe_stop(pipe_to_stop);
}

static void pause_ms(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static int fetch(void *user, dlp_item *item) {
    float *x = item->data[0];
    (void)user;
    for (int i = 0; i < 3; i++) x[i] = (float)item->index;
    return 0;
}

static int failed(const char *what, const dlp_error *err) {
    fprintf(stderr, "%s: %s: %s\n", what, dlp_code_name(err->code), err->message);
    return 1;
}

static int serve(const char *name, int share) {
    dlp_field field = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {3}};
    dlp_shm_desc shm = {
        .name = name,
        .share = share,
        .serve_only = 1, /* this process takes no batches */
        .wait_subscribers = TRAINERS,
    };
    dlp_loader_desc desc = {
        .dataset = {.n_items = ITEMS, .fields = &field, .n_fields = 1, .fetch = fetch},
        .batch_size = BATCH,
        .num_workers = 2,
        .workers = {.placement = DLP_PLACE_PROCESSES},
        .shuffle = 1,
        .epochs = EPOCHS,
        /* one: batches that all trainers hold together; each: that one of them holds */
        .pipe = {.max_held = share == DLP_SHARE_ONE ? TRAINERS : 1, .shm = &shm},
    };
    dlp_error err;
    int rc;
    if (dlp_loader_open(&pipe_to_stop, &desc, &err) != DLP_OK) return failed("open", &err);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    printf("serving '%s': waiting for %d trainers, each: share take %s\n", name, TRAINERS, name);
    fflush(stdout);
    while ((rc = dlp_shm_serve(pipe_to_stop, 1000)) == DLP_TIMEOUT) continue;
    if (rc < 0) failed("serve", dlp_pipe_error(pipe_to_stop));
    printf("served: %s\n", rc == DLP_END ? "all" : dlp_code_name(rc));
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    return dlp_pipe_close(pipe_to_stop) == DLP_OK && rc == DLP_END ? 0 : 1;
}

static int take(const char *name, int logs) {
    dlp_subscriber_desc desc = {.when_behind = logs ? DLP_BEHIND_KEEP_NEWEST : DLP_BEHIND_WAIT};
    dlp_subscriber *c = NULL;
    dlp_batch *batch;
    dlp_error err;
    double sum = 0;
    unsigned long long batches = 0, items = 0;
    int rc;
    /* the server may come later: for ten seconds, no such name is no error */
    for (int i = 0; (rc = dlp_subscriber_open(&c, name, &desc, &err)) != DLP_OK; i++) {
        if (rc != DLP_ERR_STATE && (rc != DLP_ERR_SYSTEM || err.errnum != ENOENT)) break;
        if (i == 100) break;
        pause_ms(100);
    }
    if (rc != DLP_OK) return failed(name, &err);
    rc = dlp_subscriber_next_timeout(c, &batch, 60000); /* the others may not be here yet */
    for (; rc == DLP_OK; rc = dlp_subscriber_next(c, &batch)) {
        const float *x = batch->fields[0].data; /* [count][3], where the worker wrote it */
        for (uint32_t i = 0; i < batch->count; i++) sum += (double)x[3 * i];
        batches++;
        items += batch->count;
        pause_ms(logs ? 50 : 1); /* a step */
        dlp_subscriber_release(c, batch);
    }
    if (rc < 0) failed(name, dlp_subscriber_error(c));
    if (rc == DLP_TIMEOUT) fprintf(stderr, "%s: no batch within a minute\n", name);
    printf("took: %llu batches, %llu items, sum %.0f: %s", batches, items, sum,
           rc == DLP_END ? "all" : dlp_code_name(rc));
    if (logs) printf(" but %llu missed", (unsigned long long)dlp_subscriber_missed(c));
    printf("\n");
    dlp_subscriber_close(c);
    return rc == DLP_END ? 0 : 1;
}

int main(int argc, char **argv) {
    int one = argc == 4 && strcmp(argv[3], "one") == 0;
    if (argc == 3 && strcmp(argv[1], "take") == 0) return take(argv[2], 0);
    if (argc == 3 && strcmp(argv[1], "log") == 0) return take(argv[2], 1);
    if (argc >= 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], one ? DLP_SHARE_ONE : DLP_SHARE_EACH);
    fprintf(stderr, "usage: share serve NAME [each|one]\n       share take|log NAME\n");
    return 2;
}
