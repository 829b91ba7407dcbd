/* bench_topologies: the ways to wire a loader, beside each other and beside PyTorch's DataLoader,
   on JPEG files, after the table of "Profiling and improving the PyTorch dataloader for
   high-latency storage" (Svogor et al., 2022), whose concurrent dataloader is one of the rows.

   bench_topologies [-o lines.jsonl] [-t torch.py] [-j folder] [-p photos] [-n pictures] [-s folder]
                    [row...]
   One JSON object per line on standard output and in the file, a table for people at the end on
   standard error; timelines of each row as SVG into the folder of -s. Rows: words that the names of
   rows begin with, behind "topo_"; without them all. QUICK=1: short samples. SHORT=1:
   one round of the shortest, a latency of 2 ms, without PyTorch. -p made: small computed pictures.

   The work: pictures of 500 x 375 pixels are decoded whole by libjpeg-turbo, their middle of
   224 x 224 x 3 bytes is the item; batches of 64, 4 workers, prefetch 4, shuffled. PyTorch decodes
   them with PIL, which is the same library: an epoch's bytes are the same, which is checked.
   Parts and chunks read the same pictures out of files of 128, each in one request.
   Two sources: files, as the page cache has them ("local"), and the same with 30 ms from each
   request to its first byte ("30ms"). The training step sleeps: 2 ms a batch, much less than a
   batch takes to load; in rows that end in _step twice the time in which a batch can be decoded.

   Each sample is a process of its own: it opens a pipe, takes two epochs, says what it saw. The
   rate is all items by all the time from before open, so that nothing is credited that was done
   before or is thrown away behind. A round that is not counted comes first: it warms the page
   cache, sums the bytes, looks at memory (growth since before open of the PSS of all processes),
   and draws the timelines. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_shm.h"

#include "bench_jpeg.h"

#if !HAVE_JPEG
int main(void) {
    printf("skipped: compiled without libjpeg (libjpeg62-turbo-dev)\n");
    return 77;
}
#else
#include "bench_rig.h"
#include "bench_sample.h"

enum { BATCH = 64, WORKERS = 4, PREFETCH = 4, FETCHERS = 16, POOL_ITEMS = 256, EPOCHS = 2 };
enum { LATENCY_US = 30000, STEP_US = 2000 };
enum { MOST_S = 120 };      /* of a sample */
enum { GROUP = 2 * BATCH }; /* pictures in a file that holds several: a part, a chunk */

static bool tiny; /* SHORT=1 */

/* ---- the source: a folder of pictures -------------------------------------------------------- */

/* What a sample reads: pictures first .. first + n - 1, each after a latency. */
struct folder {
    int dir;
    uint32_t first, n, latency_us;
};

/* What a thread that fetches keeps. */
static _Thread_local struct fetcher {
    struct decoder decoder;
    uint8_t *file;
    size_t room;
} mine;

/* Read a whole file into the thread's buffer. Returns its bytes; 0: errno says why not. */
static size_t file_read(const struct folder *f, const char *name) {
    struct stat st;
    ssize_t got = 0;
    int fd = openat(f->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) { return 0; }
    if ((size_t)st.st_size > mine.room) {
        free(mine.file);
        mine.room = (size_t)st.st_size * 2;
        mine.file = malloc(mine.room);
    }
    if (mine.file == NULL || (got = read(fd, mine.file, (size_t)st.st_size)) != st.st_size) {
        got = 0;
    }
    close(fd);
    return (size_t)got;
}

static size_t folder_read(const struct folder *f, uint32_t number) {
    char name[32];
    snprintf(name, sizeof name, "%05u.jpg", number);
    return file_read(f, name);
}

/* A file of several: where each picture begins, and where the last one ends, then the pictures. */
struct group {
    uint32_t at[GROUP + 1];
};

/* One request for the pictures first .. first + GROUP - 1, which follow each other in a file.
   Returns their bytes, which are in the thread's buffer; 0: errno says why not. */
static size_t group_read(const struct folder *f, uint32_t first) {
    char name[32];
    if (f->latency_us > 0) { sleep_us(f->latency_us); }
    snprintf(name, sizeof name, "group_%05u", first / GROUP);
    return file_read(f, name);
}

/* Decode picture i of a group. Returns NULL, or why not. */
static const char *group_picture(const void *bytes, size_t n, uint64_t i, uint8_t *out) {
    const struct group *g = bytes;
    if (n < sizeof *g || i >= GROUP || g->at[i] > g->at[i + 1] || g->at[i + 1] > n) {
        return "a damaged group of pictures";
    }
    return decode(&mine.decoder, (const uint8_t *)bytes + g->at[i], g->at[i + 1] - g->at[i], out);
}

static int picture_of(const struct folder *f, dlp_item *item) {
    uint32_t number = f->first + (uint32_t)item->index;
    size_t n = folder_read(f, number);
    if (n == 0) { return dlp_fail(item->call, errno, "%05u.jpg cannot be read", number); }
    const char *why = decode(&mine.decoder, mine.file, n, item->data[0]);
    return why == NULL ? 0 : dlp_fail(item->call, 0, "%05u.jpg: %s", number, why);
}

static int fetch_picture(void *user, dlp_item *item) {
    const struct folder *f = user;
    if (f->latency_us > 0) { sleep_us(f->latency_us); }
    return picture_of(f, item);
}

/* Requests that a worker has under way, FETCHERS at most: a request's bytes are there a latency
   behind its submit. Latencies are equal, so requests end in the order in which they were begun.
   Some more items may wait to be decoded (ASIDE), so that requests go on meanwhile. */
enum { ASIDE = FETCHERS / 2, ITEMS_OUT = FETCHERS + ASIDE };
struct requests {
    uint64_t due_ns[ITEMS_OUT], begun, there, done;
    dlp_item *item[ITEMS_OUT];
};

static int requests_init(void *user, int worker, void **state) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(worker);
    *state = calloc(1, sizeof(struct requests));
    return *state == NULL;
}

static void requests_exit(void *user, int worker, void *state) {
    DLPI_UNUSED(user);
    DLPI_UNUSED(worker);
    free(state);
}

static int submit_picture(void *user, void *worker_state, dlp_item *item) {
    const struct folder *f = user;
    struct requests *r = worker_state;
    uint64_t now = dlpi_now_ns();
    while (r->there < r->begun && r->due_ns[r->there % ITEMS_OUT] <= now) { r->there++; }
    if (r->begun - r->there >= FETCHERS || r->begun - r->done == ITEMS_OUT) { return DLP_FULL; }
    r->due_ns[r->begun % ITEMS_OUT] = now + f->latency_us * UINT64_C(1000);
    r->item[r->begun++ % ITEMS_OUT] = item;
    return 0;
}

/* One at a time: requests that are over make room for others before the next is decoded. */
static int reap_picture(void *user, void *worker_state, dlp_item **done, int *code, int max,
                        int timeout_ms) {
    struct requests *r = worker_state;
    if (r->begun == r->done || max < 1) { return 0; }
    uint64_t due = r->due_ns[r->done % ITEMS_OUT], now = dlpi_now_ns();
    uint64_t most = timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000 : 0;
    if (due > now) {
        sleep_us((due - now < most ? due - now : most) / 1000);
        if (due - now > most) { return 0; }
    }
    r->there = r->there > r->done + 1 ? r->there : r->done + 1;
    done[0] = r->item[r->done++ % ITEMS_OUT];
    code[0] = picture_of(user, done[0]);
    return 1;
}

/* A part: a file of pictures as it is. Items are decoded out of it. */
static int load_part(void *user, dlp_part *part) {
    const struct folder *f = user;
    size_t n = group_read(f, f->first + (uint32_t)part->first);
    if (n == 0 || n > part->capacity) {
        return dlp_fail(part->call, n == 0 ? errno : EFBIG, "no group of pictures");
    }
    memcpy(part->data, mine.file, n);
    part->bytes = n;
    return 0;
}

static int fetch_from_part(void *user, dlp_item *item) {
    const dlp_part *part = item->part;
    const char *why = group_picture(part->data, part->bytes, part->item, item->data[0]);
    DLPI_UNUSED(user);
    return why == NULL ? 0 : dlp_fail(item->call, 0, "picture %d: %s", (int)part->item, why);
}

/* A chunk: all pictures of a file, decoded one behind the other. */
static int load_chunk(void *user, dlp_chunk *c) {
    const struct folder *f = user;
    size_t n = group_read(f, f->first + (uint32_t)c->chunk_first);
    if (n == 0) { return dlp_fail(c->call, errno, "no group of pictures"); }
    for (uint64_t k = 0; k < c->count; k++) {
        uint64_t i = dlp_chunk_row(c, k) - c->chunk_first;
        const char *why = group_picture(mine.file, n, i, (uint8_t *)c->data[0] + k * PICTURE_BYTES);
        if (why != NULL) { return dlp_fail(c->call, 0, "picture %d: %s", (int)i, why); }
    }
    return 0;
}

/* ---- the rows -------------------------------------------------------------------------------- */

/* One way to load. workers x in_flight requests are under way at most, each of request_items. */
struct row {
    const char *topology, *fetcher;
    int workers, in_flight, request_items;
    /* Open a pipe of two epochs over a folder. */
    int (*open)(const struct row *row, int placement, struct folder *f, dlp_pipe **p,
                dlp_error *err);
    int topology_code, fetch;
    uint32_t pool;
};

static const dlp_field picture_field = {
    .name = "picture", .dtype = DLP_U8, .ndim = 3, .shape = {SIDE, SIDE, 3}};

static dlp_loader_desc loader_desc(const struct row *row, int placement, struct folder *folder) {
    return (dlp_loader_desc){.dataset = {.n_items = folder->n,
                                         .fields = &picture_field,
                                         .n_fields = 1,
                                         .writes_all_bytes = 1,
                                         .fetch = fetch_picture,
                                         .user = folder},
                             .batch_size = BATCH,
                             .num_workers = row->workers,
                             .shuffle = 1,
                             .epochs = EPOCHS,
                             .seed = 20250131,
                             .workers = {.placement = placement},
                             .pipe = {.prefetch_factor = PREFETCH}};
}

static int open_loader(const struct row *row, int placement, struct folder *f, dlp_pipe **p,
                       dlp_error *err) {
    dlp_loader_desc desc = loader_desc(row, placement, f);
    desc.topology = row->topology_code;
    desc.fetcher = row->fetch;
    desc.in_flight = row->in_flight > 1 ? row->in_flight : 0;
    desc.batch_pool = row->pool;
    if (row->fetch == DLP_FETCH_ASYNC) {
        desc.dataset.fetch = NULL;
        desc.in_flight += ASIDE;
        desc.async = (dlp_async){submit_picture, reap_picture};
        desc.workers.worker_init = requests_init;
        desc.workers.worker_exit = requests_exit;
    }
    return dlp_loader_open(p, &desc, err);
}

/* Bytes of the largest file of pictures that a folder's items are in. */
static uint64_t group_most(const struct folder *f) {
    uint64_t most = 1;
    for (uint32_t at = f->first; at < f->first + f->n; at += GROUP) {
        char name[32];
        struct stat st;
        snprintf(name, sizeof name, "group_%05u", at / GROUP);
        if (fstatat(f->dir, name, &st, 0) == 0 && (uint64_t)st.st_size > most) {
            most = (uint64_t)st.st_size;
        }
    }
    return most;
}

/* Batches of two streams of parts, in the fewest cells: no part stays for the next epoch. */
static int open_parts(const struct row *row, int placement, struct folder *f, dlp_pipe **p,
                      dlp_error *err) {
    uint64_t items[64];
    dlp_loader_desc desc = loader_desc(row, placement, f);
    desc.parts = (dlp_node_load){.items = items,
                                 .max_part_bytes = group_most(f),
                                 .load = load_part,
                                 .user = f,
                                 .workers = {.num_workers = WORKERS, .placement = placement}};
    desc.pipe.streams = 2;
    for (uint32_t at = 0; at < f->n && desc.parts.n_parts < 64; at += GROUP) {
        items[desc.parts.n_parts++] = f->n - at < GROUP ? f->n - at : GROUP;
    }
    desc.dataset.n_items = 0;
    desc.dataset.fetch = fetch_from_part;
    return dlp_loader_open(p, &desc, err);
}

/* A buffer for each loader, and one for the trainer. */
static int open_chunks(const struct row *row, int placement, struct folder *f, dlp_pipe **p,
                       dlp_error *err) {
    const dlp_chunks_desc desc = {.n_items = f->n,
                                  .fields = &picture_field,
                                  .n_fields = 1,
                                  .writes_all_bytes = 1,
                                  .chunk_rows = f->n < GROUP ? f->n : GROUP,
                                  .batch_size = BATCH,
                                  .shuffle_chunks = 1,
                                  .shuffle_rows = 1,
                                  .load = load_chunk,
                                  .user = f,
                                  .workers = {.num_workers = row->workers, .placement = placement},
                                  .cpu_buffers = row->workers + 1,
                                  .epochs = EPOCHS,
                                  .seed = 20250131};
    return dlp_chunks_open(p, &desc, err);
}

/* Short names for the table below. */
enum { ECO = DLP_TOPOLOGY_ECONOMIC, CLA = DLP_TOPOLOGY_CLASSIC, CON = DLP_TOPOLOGY_CONCURRENT };
enum { THREADS = DLP_FETCH_THREADS, ASYNC = DLP_FETCH_ASYNC };

static const struct row rows[] = {
    {"economic", "seq", WORKERS, 1, 1, open_loader, ECO, 0, 0},
    {"economic", "seq64", WORKERS *FETCHERS, 1, 1, open_loader, ECO, 0, 0},
    {"economic", "threads", WORKERS, FETCHERS, 1, open_loader, ECO, THREADS, 0},
    {"economic", "async", WORKERS, FETCHERS, 1, open_loader, ECO, ASYNC, 0},
    {"classic", "seq", WORKERS, 1, 1, open_loader, CLA, 0, 0},
    {"concurrent", "threads", WORKERS, FETCHERS, 1, open_loader, CON, THREADS, 0},
    {"concurrent", "async", WORKERS, FETCHERS, 1, open_loader, CON, ASYNC, 0},
    {"concurrent", "threadspool", WORKERS, FETCHERS, 1, open_loader, CON, THREADS, POOL_ITEMS},
    {"concurrent", "asyncpool", WORKERS, FETCHERS, 1, open_loader, CON, ASYNC, POOL_ITEMS},
    {"parts", "seq", WORKERS, 1, GROUP, open_parts, 0, 0, 0},
    {"chunks", "seq", WORKERS, 1, GROUP, open_chunks, 0, 0, 0},
    {"bare", "seq", WORKERS, 1, 1, NULL, 0, 0, 0},
    {"bare", "seq64", WORKERS *FETCHERS, 1, 1, NULL, 0, 0, 0},
    {"bare", "threads", WORKERS, FETCHERS, 1, NULL, 0, THREADS, 0},
    {"bare", "async", WORKERS, FETCHERS, 1, NULL, 0, ASYNC, 0},
    {"bare", "groups", WORKERS, 1, GROUP, NULL, 0, 0, 0},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const char *const place_name[] = {"threads", "processes"};
static const char *const source_name[] = {"local", "30ms"};

/* A row in one placement on one source. */
struct cell {
    const struct row *row;
    int placement, source;
    uint32_t n_items; /* of an epoch of a sample */
    uint32_t step_us;
    char name[64];
    uint64_t sum; /* of the bytes of an epoch, as words; of the round that is not counted */
    double plan_bytes, peak_bytes;
    double wait_share[2 * MAX_ROUNDS], first_ms[2 * MAX_ROUNDS], gap_ms[2 * MAX_ROUNDS];
    size_t n_samples;
};

static uint32_t latency_of(int source) { return source == 0 ? 0 : tiny ? 2000 : LATENCY_US; }

/* ---- the same requests without a pipe -------------------------------------------------------- */

/* What rows of the same fetcher could do if nothing were between their threads and the pictures:
   each thread takes the number of the next request, waits for it, decodes what it brings into its
   share of as many cells as the pipe has. No order, batches, or trainer. What such a row lacks to
   the limit is the queueing for the cores, the reading of files, the first and the last latency;
   only what a pipe lacks to such a row is the pipe's. */
struct bare {
    struct bare_shared {
        uint32_t next;    /* the next request, of all epochs */
        uint32_t threads; /* that were begun */
        uint32_t failed;
        uint64_t sum; /* of the bytes of the first epoch */
    } * shared;       /* by all processes, and the cells behind it */
    uint8_t *cells;
    const struct row *row;
    struct folder *folder;
    bool look;
};

/* What a thread of it has. */
struct bare_own {
    uint8_t *cells;
    uint32_t n, turn;
};

static uint32_t bare_cells(const struct row *row) {
    return row->request_items > 1 ? (uint32_t)((WORKERS + 1) * GROUP) : (PREFETCH + 1) * BATCH;
}

static int bare_threads(const struct row *row) {
    return row->fetch == THREADS ? row->workers * row->in_flight : row->workers;
}

static void bare_begin(const struct bare *b, struct bare_own *own) {
    /* D3 <- D3: the number alone is what is handed out */
    uint32_t i = DLPI_ADD_RLX(&b->shared->threads, 1u);
    own->n = bare_cells(b->row) / (uint32_t)bare_threads(b->row);
    own->cells = b->cells + (size_t)(i * own->n) * PICTURE_BYTES;
    own->turn = 0;
}

static uint8_t *bare_cell(struct bare_own *own) {
    return own->cells + (size_t)(own->turn++ % own->n) * PICTURE_BYTES;
}

/* Take the numbers of the next pictures. Returns how many, 0 behind the last epoch. */
static uint32_t bare_next(const struct bare *b, uint32_t *first) {
    uint32_t items = (uint32_t)b->row->request_items, n = b->folder->n;
    uint32_t requests = (n + items - 1) / items; /* of an epoch */
    /* D2 <- D2: the number alone is what is handed out */
    uint32_t at = DLPI_ADD_RLX(&b->shared->next, 1u);
    uint32_t in_epoch = at % requests * items;
    *first = at / requests * n + in_epoch;
    return at >= EPOCHS * requests ? 0 : n - in_epoch < items ? n - in_epoch : items;
}

static void bare_done(const struct bare *b, uint32_t picture, const uint8_t *cell, bool good) {
    uint64_t sum = b->look && picture < b->folder->n ? sum_of_bytes(cell, PICTURE_BYTES) : 0;
    DLPI_ADD_RLX(&b->shared->sum, sum); /* read behind the end of all, here and below */
    DLPI_ADD_RLX(&b->shared->failed, (uint32_t)!good);
}

/* An item as a pipe would give it. */
struct bare_item {
    dlp_item item;
    void *cell;
    char message[256];
    int32_t errnum;
    dlp_call note;
    uint32_t picture; /* of all epochs */
};

static dlp_item *bare_item(const struct bare *b, struct bare_item *i, uint32_t picture) {
    i->picture = picture;
    i->note = (dlp_call){.message = i->message, .errnum = &i->errnum};
    i->item = (dlp_item){.index = picture % b->folder->n, .data = &i->cell, .call = &i->note};
    return &i->item;
}

static void bare_one_by_one(const struct bare *b) {
    struct bare_own own;
    uint32_t first, n;
    bare_begin(b, &own);
    while ((n = bare_next(b, &first)) > 0) {
        if (b->row->request_items == 1) {
            struct bare_item i = {.cell = bare_cell(&own)};
            bool good = fetch_picture(b->folder, bare_item(b, &i, first)) == 0;
            bare_done(b, first, i.cell, good);
            continue;
        }
        size_t bytes = group_read(b->folder, b->folder->first + first % b->folder->n);
        for (uint32_t i = 0; i < n; i++) {
            uint8_t *cell = bare_cell(&own);
            bool good = bytes > 0 && group_picture(mine.file, bytes, i, cell) == NULL;
            bare_done(b, first + i, cell, good);
        }
    }
}

/* FETCHERS requests in flight in this thread, by the callbacks that the pipe's workers call. */
static void bare_async(const struct bare *b) {
    struct bare_item out[ITEMS_OUT];
    struct bare_own own;
    struct requests r = {0};
    uint32_t begun = 0, done = 0, first = 0;
    bool more = bare_next(b, &first) > 0;
    bare_begin(b, &own);
    while (more || done < begun) {
        struct bare_item *next = &out[begun % ITEMS_OUT], *last = &out[done % ITEMS_OUT];
        dlp_item *back;
        int code;
        if (more && begun - done < ITEMS_OUT) {
            next->cell = own.cells + (size_t)(begun % own.n) * PICTURE_BYTES;
            if (submit_picture(b->folder, &r, bare_item(b, next, first)) == 0) {
                begun++;
                more = bare_next(b, &first) > 0;
                continue;
            }
        }
        if (reap_picture(b->folder, &r, &back, &code, 1, 50) == 1) {
            bare_done(b, last->picture, last->cell, code == 0);
            done++;
        }
    }
}

static void *bare_member(void *arg) {
    const struct bare *b = arg;
    if (b->row->fetch == ASYNC) {
        bare_async(b);
    } else {
        bare_one_by_one(b);
    }
    return NULL;
}

/* Run n threads to their end. */
static void bare_team(struct bare *b, int n) {
    pthread_t thread[WORKERS * FETCHERS];
    int begun = 0;
    while (begun < n && pthread_create(&thread[begun], NULL, bare_member, b) == 0) { begun++; }
    for (int i = 0; i < begun; i++) { pthread_join(thread[i], NULL); }
    DLPI_ADD_RLX(&b->shared->failed, (uint32_t)(begun < n));
}

static bool bare_take(const struct row *row, int placement, struct folder *folder, bool look,
                      struct sample *s, double begin) {
    size_t bytes = 4096 + (size_t)bare_cells(row) * PICTURE_BYTES;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct bare b = {map, (uint8_t *)map + 4096, row, folder, look};
    int threads = bare_threads(row), status;
    bool good = map != MAP_FAILED;
    if (placement == DLP_PLACE_THREADS && good) { bare_team(&b, threads); }
    for (int i = 0; i < row->workers && placement == DLP_PLACE_PROCESSES && good; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            bare_team(&b, threads / row->workers);
            _exit(0);
        }
        good = pid > 0;
    }
    while (wait(&status) > 0) { good = good && status == 0; }
    s->rate = EPOCHS * folder->n / (seconds_now() - begin);
    s->sum = good ? b.shared->sum : 0;
    return good && b.shared->failed == 0;
}

/* ---- a sample, in a process of its own ------------------------------------------------------- */

static dlp_pipe *sample_open(const struct row *row, int placement, struct folder *folder) {
    dlp_pipe *p = NULL;
    dlp_error err;
    char text[512];
    if (row->open(row, placement, folder, &p, &err) != DLP_OK) {
        dlp_error_format(&err, text, sizeof text);
        say(" [open: %s]", text);
        return NULL;
    }
    return p;
}

/* bench_topologies --sample ROW PLACEMENT LATENCY_US FIRST N STEP_US FOLDER LOOK [TIMELINE]
   LOOK 1: sum bytes, tell the memory before. Prints the figures. */
static int sample_main(char **argv) {
    const struct row *row = &rows[atoi(argv[2])];
    struct folder folder = {.dir = open(argv[8], O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                            .first = (uint32_t)atoi(argv[5]),
                            .n = (uint32_t)atoi(argv[6]),
                            .latency_us = (uint32_t)atoi(argv[4])};
    struct sample s = {0};
    bool look = atoi(argv[9]) != 0;
    s.before_bytes = look ? (double)resident_bytes(getpid()) : 0;
    double begin = seconds_now();
    if (row->open == NULL) {
        return !bare_take(row, atoi(argv[3]), &folder, look, &s, begin) || !sample_print(&s);
    }
    dlp_pipe *p = sample_open(row, atoi(argv[3]), &folder);
    if (p == NULL || !sample_take(p, (uint32_t)atoi(argv[7]), look, &s, begin)) { return 1; }
    return sample_tell(p, &s, argv[10]);
}

/* ---- the ceilings ---------------------------------------------------------------------------- */

struct decode_team {
    uint8_t **file;
    size_t *bytes;
    uint32_t n;
    uint32_t next; /* the next file to be decoded */
    bool failed;
};

static void *decode_member(void *arg) {
    struct decode_team *t = arg;
    uint8_t *out = malloc(PICTURE_BYTES);
    uint32_t i;
    /* D1 <- D1: the number alone is what is handed out */
    while (out != NULL && (i = DLPI_ADD_RLX(&t->next, 1u)) < t->n) {
        t->failed |= decode(&mine.decoder, t->file[i], t->bytes[i], out) != NULL;
    }
    decoder_end(&mine.decoder);
    free(out);
    return NULL;
}

/* bench_topologies --decode THREADS FIRST N FOLDER: items a second of a bare loop over files that
   are in memory. */
static int decode_main(char **argv) {
    pthread_t thread[64];
    int n_threads = atoi(argv[2]) < 64 ? atoi(argv[2]) : 64, begun = 0;
    struct folder folder = {.dir = open(argv[5], O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                            .first = (uint32_t)atoi(argv[3]),
                            .n = (uint32_t)atoi(argv[4])};
    struct decode_team team = {.n = folder.n};
    team.file = calloc(folder.n, sizeof *team.file);
    team.bytes = calloc(folder.n, sizeof *team.bytes);
    for (uint32_t i = 0; i < folder.n; i++) {
        team.bytes[i] = folder_read(&folder, folder.first + i);
        team.file[i] = malloc(team.bytes[i] + 1);
        if (team.bytes[i] == 0 || team.file[i] == NULL) { return 1; }
        memcpy(team.file[i], mine.file, team.bytes[i]);
    }
    double begin = seconds_now();
    while (begun < n_threads && pthread_create(&thread[begun], NULL, decode_member, &team) == 0) {
        begun++;
    }
    for (int i = 0; i < begun; i++) { pthread_join(thread[i], NULL); }
    printf("%.9g\n", team.n / (seconds_now() - begin));
    return team.failed || begun == 0;
}

/* ---- asking for samples ---------------------------------------------------------------------- */

static struct {
    const char *folder, *svg;
    uint32_t n_pictures;
    double file_bytes; /* of a picture, on average */
    uint32_t round;    /* which part of the pictures the next samples read */
} plan = {.folder = "build/bench/jpegs", .n_pictures = 3000};

/* The first of n pictures: others from round to round. */
static uint32_t part_first(uint32_t n) {
    return plan.round * 3 * GROUP % (plan.n_pictures - n + 1) / GROUP * GROUP;
}

static bool ask_sample(const struct cell *c, struct sample *s, uint32_t n, struct child *child,
                       const char *timeline) {
    char number[6][16];
    snprintf(number[0], 16, "%d", (int)(c->row - rows));
    snprintf(number[1], 16, "%d", c->placement);
    snprintf(number[2], 16, "%u", latency_of(c->source));
    snprintf(number[3], 16, "%u", part_first(n));
    snprintf(number[4], 16, "%u", n);
    snprintf(number[5], 16, "%u", c->step_us);
    const char *argv[] = {
        "bench_topologies", "--sample", number[0], number[1],   number[2],
        number[3],          number[4],  number[5], plan.folder, child->bytes_of != NULL ? "1" : "0",
        timeline,           NULL};
    return sample_ask(child, argv, s);
}

static double sample_cell(void *arg) {
    struct cell *c = arg;
    struct sample s;
    struct child child = {.most_s = MOST_S};
    if (!ask_sample(c, &s, c->n_items, &child, NULL) || c->n_samples == 2 * MAX_ROUNDS) {
        failures++;
        return NAN;
    }
    c->wait_share[c->n_samples] = s.wait_share;
    c->first_ms[c->n_samples] = s.first_ms;
    c->gap_ms[c->n_samples++] = s.gap_ms;
    return s.rate;
}

static double sample_decode(void *arg) {
    const uint32_t *n = arg;
    char threads[16], first[16], count[16], line[256];
    double rate;
    snprintf(threads, 16, "%d", cpus_allowed());
    snprintf(first, 16, "%u", part_first(*n));
    snprintf(count, 16, "%u", *n);
    const char *argv[] = {"bench_topologies", "--decode", threads, first, count, plan.folder, NULL};
    struct child child = {.most_s = MOST_S};
    plan.round++; /* it is the first contender: a new round */
    if (!run_child(&child, "/proc/self/exe", argv, line, sizeof line) ||
        sscanf(line, "%lf", &rate) != 1) {
        failures++;
        return NAN;
    }
    return rate;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

/* The answers have the shape of ours: persistent workers, that are up and have run an epoch. */
static bool ask_torch(const struct cell *c, struct sample *s, uint32_t n, bool look, double *peak) {
    double a[7];
    if (!torch_ask(a, 7, "topology %u %u %d %d %d %u %d %u %d", part_first(n), n, BATCH, WORKERS,
                   PREFETCH, latency_of(c->source), EPOCHS, c->step_us, look)) {
        return false;
    }
    *s = (struct sample){.rate = a[0], .wait_share = a[1], .first_ms = a[2], .gap_ms = a[3]};
    *peak = a[4];
    s->sum = (uint64_t)a[5] << 32 | (uint64_t)a[6];
    return true;
}

static double sample_torch(void *arg) {
    struct cell *c = arg;
    struct sample s;
    double peak;
    if (c->n_samples == 2 * MAX_ROUNDS || !ask_torch(c, &s, c->n_items, false, &peak)) {
        return NAN;
    }
    c->wait_share[c->n_samples] = s.wait_share;
    c->gap_ms[c->n_samples++] = s.gap_ms;
    return s.rate;
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { MAX_CELLS = MAX_CONTENDERS - 1 };

static struct {
    struct cell cell[MAX_CELLS]; /* contender i + 1; the first contender decodes */
    int n, n_ours;               /* those behind n_ours are PyTorch's */
    struct series series;
    double decode; /* items a second that the cores can decode: an estimate, then the median */
    uint32_t step_us;
} table;

static const struct row torch_row = {"torch", "persistent", WORKERS, 1, 1, NULL, 0, 0, 0};

static double in_flight_rate(const struct cell *c) {
    uint32_t us = latency_of(c->source);
    double items = c->row->workers * c->row->in_flight * c->row->request_items;
    return us == 0 ? INFINITY : items * 1e6 / us;
}

/* What no wiring can beat: the cores, the requests in flight, the step. */
static double ceiling_of(const struct cell *c) {
    double rate = fmin(table.decode, in_flight_rate(c));
    return c->step_us == STEP_US ? rate : fmin(rate, BATCH * 1e6 / c->step_us);
}

/* Latency is what limits it, by far: its samples have few items. */
static bool is_slow(const struct cell *c) { return in_flight_rate(c) < table.decode / 2; }

static uint32_t look_items(const struct cell *c) {
    uint32_t n = tiny ? plan.n_pictures : is_slow(c) || quick ? WORKERS * BATCH : 12 * BATCH;
    return n < plan.n_pictures ? n : plan.n_pictures;
}

static uint32_t sample_items(const struct cell *c) {
    double seconds = quick ? 0.6 : c->source == 0 ? 2 : 4;
    uint32_t fair = WORKERS * BATCH; /* where a worker has whole batches, all have as many */
    uint32_t n = (uint32_t)(ceiling_of(c) * seconds / EPOCHS) / fair * fair;
    n = n < fair ? fair : n;
    return n < plan.n_pictures ? n : plan.n_pictures;
}

static bool row_is_wanted(const char *name, char **list) {
    for (int i = 0; list[i] != NULL; i++) {
        if (strncmp(name + strlen("topo_"), list[i], strlen(list[i])) == 0) { return true; }
    }
    return list[0] == NULL;
}

static void table_add(const struct row *row, int placement, int source, bool step, char **wanted) {
    struct cell *c = &table.cell[table.n];
    *c = (struct cell){.row = row, .placement = placement, .source = source};
    c->step_us = step ? table.step_us : STEP_US;
    c->n_items = sample_items(c);
    snprintf(c->name, sizeof c->name, "topo_%s_%s_%s_%s%s", row->topology, row->fetcher,
             place_name[placement], source_name[source], step ? "_step" : "");
    if (table.n < MAX_CELLS && (row == &torch_row || row_is_wanted(c->name, wanted))) { table.n++; }
}

/* Is it worth its time? From files, more requests than workers have nothing to wait for; the quick
   form has one placement of what is slow, the shortest one of each. */
static bool is_in_table(const struct row *row, int placement, int source) {
    struct cell c = {.row = row, .source = source};
    if (tiny && placement != source) { return false; }
    if (row->open == NULL) {
        return (row->workers * row->in_flight > WORKERS || row->request_items > 1) == (source == 1);
    }
    if (source == 0 && (row->workers > WORKERS || strstr(row->fetcher, "pool") != NULL)) {
        return false;
    }
    return tiny || !quick || placement == DLP_PLACE_THREADS || !is_slow(&c);
}

static void table_fill(char **wanted) {
    for (int source = 0; source < 2; source++) {
        for (int i = 0; i < N_ROWS; i++) {
            for (int placement = 0; placement < 2; placement++) {
                if (is_in_table(&rows[i], placement, source)) {
                    table_add(&rows[i], placement, source, false, wanted);
                }
            }
        }
    }
    /* Where the step is the limit: one of each topology. */
    for (int i = 0; i < N_ROWS; i++) {
        bool first = i == 0 || strcmp(rows[i].topology, rows[i - 1].topology) != 0;
        if (first && rows[i].open != NULL) {
            table_add(&rows[i], DLP_PLACE_THREADS, 0, true, wanted);
        }
    }
    table.n_ours = table.n;
    for (int i = 0; i < 3 && torch.pid > 0; i++) {
        table_add(&torch_row, DLP_PLACE_PROCESSES, i == 1, i == 2, wanted);
    }
}

static bool is_bare(const struct cell *c) { return c->row->open == NULL && c->row != &torch_row; }

/* The cell of the same requests without a pipe; -1: there is none. */
static int bare_of(const struct cell *c) {
    const struct row *r = c->row;
    for (int i = 0; i < table.n_ours; i++) {
        const struct cell *o = &table.cell[i];
        if (is_bare(o) && o->source == c->source && o->placement == c->placement &&
            o->row->workers == r->workers && o->row->in_flight == r->in_flight &&
            o->row->request_items == r->request_items && o->row->fetch == r->fetch &&
            c->step_us == STEP_US) {
            return i;
        }
    }
    return -1;
}

/* The cell of PyTorch on the same source and with the same step; -1: none. */
static int torch_of(const struct cell *c) {
    for (int i = table.n_ours; i < table.n; i++) {
        if (table.cell[i].source == c->source && table.cell[i].step_us == c->step_us) { return i; }
    }
    return -1;
}

static void cell_look(struct cell *c) {
    struct sample s = {0};
    char svg[512];
    bool good;
    if (c->row == &torch_row) {
        good = ask_torch(c, &s, look_items(c), true, &c->peak_bytes);
        c->first_ms[0] = s.first_ms; /* of workers that are begun for it, as ours are */
    } else {
        int every_ms = tiny ? 4 : 40;
        struct child child = {.bytes_of = resident_bytes, .every_ms = every_ms, .most_s = MOST_S};
        snprintf(svg, sizeof svg, "%s/timeline_%s.svg", plan.svg == NULL ? "" : plan.svg,
                 c->name + strlen("topo_"));
        good =
            ask_sample(c, &s, look_items(c), &child, plan.svg == NULL || is_bare(c) ? NULL : svg);
        failures += !good;
        c->peak_bytes = fmax((double)child.peak_bytes - s.before_bytes, 0);
        c->plan_bytes = s.plan_bytes;
    }
    c->sum = s.sum;
    say("%-48s %6.0f item/s, %.1f MB planned, %.1f MB\n", c->name, s.rate, c->plan_bytes * 1e-6,
        c->peak_bytes * 1e-6);
}

/* Memory is the same from either source; where a slow one had few batches it was not all used. */
static void peak_of_slow(struct cell *c) {
    for (int i = 0; i < table.n && is_slow(c); i++) {
        const struct cell *o = &table.cell[i];
        if (o->row == c->row && o->placement == c->placement && o->step_us == c->step_us) {
            c->peak_bytes = fmax(c->peak_bytes, o->peak_bytes);
        }
    }
}

/* Every way to load delivers the same bytes. */
static void table_look(void) {
    for (int i = 0; i < table.n; i++) { cell_look(&table.cell[i]); }
    for (int i = 0; i < table.n; i++) {
        struct cell *c = &table.cell[i], *o = c;
        for (int j = 0; j < i && o == c; j++) {
            o = look_items(&table.cell[j]) == look_items(c) ? &table.cell[j] : c;
        }
        if (c->sum != o->sum) {
            say("%s delivers other bytes than %s\n", c->name, o->name);
            failures++;
        }
        peak_of_slow(c);
    }
}

static double median_of(const double *v, size_t n) {
    double copy[2 * MAX_ROUNDS];
    memcpy(copy, v, n * sizeof *v);
    return quantile(copy, n, 0.5);
}

static double rate_of(int i) {
    double v[MAX_ROUNDS];
    size_t n = 0;
    for (int r = 0; r < table.series.n_rounds; r++) {
        if (!isnan(table.series.value[i + 1][r])) { v[n++] = table.series.value[i + 1][r]; }
    }
    return quantile(v, n, 0.5);
}

/* The cell of the classic topology to compare with; -1: there is none. */
static int classic_of(const struct cell *c) {
    for (int i = 0; i < table.n_ours; i++) {
        const struct cell *o = &table.cell[i];
        if (strcmp(o->row->topology, "classic") == 0 && o->source == c->source &&
            o->placement == c->placement && o->step_us == c->step_us) {
            return i;
        }
    }
    return -1;
}

/* Enough requests are in flight to hide the latency: then the cores should be the limit, or near.
   From files nothing should be slower than a whole batch to each worker. */
static const char *wanted_of(const struct cell *c) {
    if (c->step_us != STEP_US || is_slow(c) || is_bare(c)) { return NULL; }
    return c->source == 0 ? "of_classic 0.95" : "of_ideal 0.95";
}

/* Say what falls short of what is wanted. */
static void table_judge(void) {
    int short_of = 0;
    for (int i = 0; i < table.n_ours; i++) {
        const struct cell *c = &table.cell[i];
        int classic = classic_of(c);
        double limit = c->source == 0 ? classic < 0 ? NAN : rate_of(classic) : ceiling_of(c);
        if (wanted_of(c) != NULL && rate_of(i) < 0.95 * limit) {
            say("short of %s: %s, %.3f\n", wanted_of(c), c->name, rate_of(i) / limit);
            short_of++;
        }
        double batches = c->plan_bytes / ((double)BATCH * PICTURE_BYTES);
        if (strcmp(c->row->topology, "economic") == 0 && batches > PREFETCH + 1.2) {
            say("%s: the memory of %.2f batches is planned\n", c->name, batches);
            short_of++;
        }
    }
    say("wanted: 0.95 of the limit with latency, 0.95 of classic without, prefetch + 1 batches of "
        "memory (economic): %d fall short\n",
        short_of);
}

static void put_cell(int i) {
    const struct cell *c = &table.cell[i];
    struct measure m = {.bench = c->name, .unit = "item/s", .ideal = ceiling_of(c)};
    int t = torch_of(c), classic = classic_of(c), bare = bare_of(c);
    size_t n = (size_t)snprintf(
        m.extra, sizeof m.extra,
        ",\"wait_share\":%.3f,\"peak_bytes\":%.0f,\"plan_bytes\":%.0f,\"first_batch_ms\":%.4g,"
        "\"epoch_gap_ms\":%.4g,\"bytes_per_s\":%.4g,\"step_ms\":%.4g,\"workers\":%d,"
        "\"in_flight\":%d,\"prefetch\":%d,\"batch\":%d,\"epoch_items\":%u",
        median_of(c->wait_share, c->n_samples), c->peak_bytes, c->plan_bytes,
        median_of(c->first_ms, c->n_samples), median_of(c->gap_ms, c->n_samples),
        rate_of(i) * plan.file_bytes, c->step_us * 1e-3, c->row->workers,
        c->row->workers * c->row->in_flight, PREFETCH, BATCH, c->n_items);
    if (classic >= 0 && !is_bare(c)) {
        n += (size_t)snprintf(m.extra + n, sizeof m.extra - n, ",\"of_classic\":%.3f",
                              rate_of(i) / rate_of(classic));
    }
    if (bare >= 0 && bare != i) {
        n += (size_t)snprintf(m.extra + n, sizeof m.extra - n, ",\"of_bare\":%.3f",
                              rate_of(i) / rate_of(bare));
    }
    if (wanted_of(c) != NULL) {
        n += (size_t)snprintf(m.extra + n, sizeof m.extra - n, ",\"wanted\":\"%s\"", wanted_of(c));
    }
    if (t < 0 || is_bare(c)) {
        put(&m, &table.series, i + 1, -1);
        if (!is_bare(c)) { put_skipped(c->name, "torch", tiny ? "SHORT=1" : torch_reason(), ""); }
        return;
    }
    const struct cell *o = &table.cell[t];
    snprintf(m.extra + n, sizeof m.extra - n,
             ",\"their_wait_share\":%.3f,\"their_peak_bytes\":%.0f,\"their_first_batch_ms\":%.4g,"
             "\"their_epoch_gap_ms\":%.4g",
             median_of(o->wait_share, o->n_samples), o->peak_bytes, o->first_ms[0],
             median_of(o->gap_ms, o->n_samples));
    put(&m, &table.series, i + 1, t + 1);
}

static void table_print(void) {
    say("\n%-44s %7s %6s %6s %6s %6s %5s %7s %7s %7s %7s\n", "", "item/s", "of", "of", "of", "MB/s",
        "wait", "plan", "peak", "first", "gap");
    say("%-44s %7s %6s %6s %6s %6s %5s %7s %7s %7s %7s\n", "", "", "limit", "bare", "torch", "",
        "%", "MB", "MB", "ms", "ms");
    for (int i = 0; i < table.n; i++) {
        const struct cell *c = &table.cell[i];
        int t = torch_of(c), bare = bare_of(c);
        bool ours = i < table.n_ours;
        say("%-44s %7.0f %6.2f %6.2f %6.2f %6.1f %5.1f %7.1f %7.1f %7.1f %7.1f\n",
            c->name + strlen("topo_"), rate_of(i), rate_of(i) / ceiling_of(c),
            bare < 0 || is_bare(c) ? NAN : rate_of(i) / rate_of(bare),
            t < 0 ? NAN : rate_of(i) / rate_of(t), rate_of(i) * plan.file_bytes * 1e-6,
            100 * median_of(c->wait_share, c->n_samples), c->plan_bytes * 1e-6,
            c->peak_bytes * 1e-6, ours ? median_of(c->first_ms, c->n_samples) : c->first_ms[0],
            median_of(c->gap_ms, c->n_samples));
    }
    say("bare: threads with the same requests and no pipe, order, batches or trainer\n");
    say("limit: %d cores decode %.0f pictures a second; requests in flight / %d ms\n",
        cpus_allowed(), table.decode, LATENCY_US / 1000);
    say("pictures: %.1f KB each; step %.3g ms, in _step %.3g ms\n", plan.file_bytes * 1e-3,
        STEP_US * 1e-3, table.step_us * 1e-3);
}

/* ---- the pictures ---------------------------------------------------------------------------- */

/* The same pictures, GROUP to a file. The last file's that are missing have no bytes. */
static bool group_write(uint32_t first, int dir) {
    struct folder f = {.dir = dir};
    struct group g = {{sizeof g}};
    char path[512];
    snprintf(path, sizeof path, "%s/group_%05u", plan.folder, first / GROUP);
    FILE *out = fopen(path, "wb");
    bool good = out != NULL && fwrite(&g, sizeof g, 1, out) == 1;
    for (uint32_t i = 0; i < GROUP && good; i++) {
        size_t n = first + i < plan.n_pictures ? folder_read(&f, first + i) : 0;
        good = fwrite(mine.file, 1, n, out) == n && (n > 0 || first + i >= plan.n_pictures);
        g.at[i + 1] = g.at[i] + (uint32_t)n;
    }
    good = good && fseek(out, 0, SEEK_SET) == 0 && fwrite(&g, sizeof g, 1, out) == 1;
    return out != NULL && fclose(out) == 0 && good;
}

static bool groups_write(void) {
    int dir = open(plan.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = dir >= 0;
    for (uint32_t i = 0; i < plan.n_pictures && good; i += GROUP) { good = group_write(i, dir); }
    if (dir >= 0) { close(dir); }
    return good;
}

/* Have all pictures in the folder: a file beside them says how many were written, from where. */
static bool pictures_ready(const char *photos) {
    bool made = strcmp(photos, "made") == 0;
    struct size size = {made ? 256 : CUT_WIDTH, made ? 240 : CUT_HEIGHT};
    char said[64] = "", want[64], path[512];
    snprintf(want, sizeof want, "%u of 5 from %.40s\n", plan.n_pictures, photos);
    snprintf(path, sizeof path, "%s/made", plan.folder);
    FILE *f = fopen(path, "r");
    bool there = f != NULL && fgets(said, sizeof said, f) != NULL && strcmp(said, want) == 0;
    if (f != NULL) { fclose(f); }
    if (there) { return true; }
    mkdir(plan.folder, 0777);
    return pictures_cut(photos, size, plan.n_pictures, plan.folder) && groups_write() &&
           (f = fopen(path, "w")) != NULL && fputs(want, f) >= 0 && fclose(f) == 0;
}

static bool pictures_measure(void) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan.n_pictures; i++) {
        char path[512];
        struct stat st;
        snprintf(path, sizeof path, "%s/%05u.jpg", plan.folder, i);
        if (stat(path, &st) != 0) { return false; }
        bytes += (uint64_t)st.st_size;
    }
    plan.file_bytes = (double)bytes / plan.n_pictures;
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int usage(void) {
    say("bench_topologies [-o lines.jsonl] [-t torch.py] [-j folder] [-p photos | -p made]\n"
        "                 [-n pictures] [-s folder] [row...]\n");
    return 2;
}

static bool options(int argc, char **argv, const char **photos) {
    bool good = true;
    for (int c; (c = getopt(argc, argv, "o:t:j:p:n:s:")) != -1;) {
        switch (c) {
        case 't': torch_script = optarg; break;
        case 'j': plan.folder = optarg; break;
        case 'p': *photos = optarg; break;
        case 'n': plan.n_pictures = (uint32_t)atoi(optarg); break;
        case 's': plan.svg = optarg; break;
        case 'o': good = lines_to(optarg, "w"); break;
        default: return false;
        }
    }
    return good && plan.n_pictures > 0;
}

static void put_decode(void) {
    struct measure m = {.bench = "topo_decode_ceiling", .unit = "item/s"};
    snprintf(m.extra, sizeof m.extra, ",\"threads\":%d,\"file_bytes\":%.0f,\"bytes_per_s\":%.4g",
             cpus_allowed(), plan.file_bytes, table.decode * plan.file_bytes);
    put(&m, &table.series, 0, -1);
}

/* Take all samples. */
static void table_run(char **wanted) {
    uint32_t n = tiny ? plan.n_pictures : quick ? 1024 : 2048;
    n = n < plan.n_pictures ? n : plan.n_pictures;
    table.decode = sample_decode(&n);
    plan.round = 0;
    table.step_us = tiny ? 5000 : (uint32_t)(2e6 * BATCH / table.decode) / 1000 * 1000 + 1000;
    table_fill(wanted);
    table_look();
    compete(&table.series, "decode", "", sample_decode, &n);
    for (int i = 0; i < table.n; i++) {
        bool ours = i < table.n_ours;
        compete(&table.series, ours ? table.cell[i].name + strlen("topo_") : "torch",
                ours ? "" : torch.version, ours ? sample_cell : sample_torch, &table.cell[i]);
    }
    table.series.any_distance = true;
    run_rounds(&table.series, "topologies", tiny ? 1 : 3);
    table.decode = rate_of(-1);
}

int main(int argc, char **argv) {
    const char *photos = "/usr/share/backgrounds";
    if (argc > 9 && strcmp(argv[1], "--sample") == 0) { return sample_main(argv); }
    if (argc == 6 && strcmp(argv[1], "--decode") == 0) { return decode_main(argv); }
    tiny = asked_for("SHORT");
    quick = tiny || asked_for("QUICK");
    torch_script = "tests/bench/bench_topologies_torch.py";
    if (!options(argc, argv, &photos)) { return usage(); }
    signal(SIGPIPE, SIG_IGN);
    double begin = seconds_now();
    if (!pictures_ready(photos) || !pictures_measure()) {
        say("no pictures in %s, and none could be cut out of photographs in %s "
            "(lomiri-wallpapers-20.04)\n",
            plan.folder, photos);
        return 1;
    }
    say("%u pictures, %.1f KB each, %.1f s\n", plan.n_pictures, plan.file_bytes * 1e-3,
        seconds_now() - begin);
    if (!tiny) {
        setenv("PICTURES", plan.folder, 1);
        torch_begin();
    }
    table_run(argv + optind);
    put_decode();
    for (int i = 0; i < table.n_ours; i++) { put_cell(i); }
    table_print();
    if (!tiny) { table_judge(); }
    torch_end("");
    say("%d failures, %.0f s\n", failures, seconds_now() - begin);
    return failures != 0;
}
#endif
