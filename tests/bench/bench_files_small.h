/* Small items of files that are in memory, beside threads by hand: lines of a text (peer "mmap":
   each line is copied out of a mapping), samples of a tar (peer "pread"), files of 4 KiB (peer
   "pread": open, fstat, pread, close), and windows of 64 tokens in batches of 4 (peer "mmap"). The
   threads by hand share one mutex, and claim a batch at once. They know the order and the places
   before the clock starts. Forms: "default", with a prefetch of 2; "fast", with a prefetch of 16,
   where lines and the tar are mapped. */

enum small_kind { SMALL_LINES, SMALL_TAR, SMALL_FILES, SMALL_TOKENS, SMALL_KINDS };
enum { SMALL_ITEMS = 20000, SMALL_ROOM = 4096, SMALL_LINE = 1000, SMALL_BLOCK = 512 };
enum { SMALL_HEADER = 1024, SMALL_WINDOW = 64 }; /* bytes of llm.c's header; tokens */
#define SMALL_NS 100000000u

static struct small_set { /* the items of one kind */
    char path[440];
    uint64_t at[SMALL_ITEMS], bytes[SMALL_ITEMS];
    uint32_t order[SMALL_ITEMS], batch;
    const uint8_t *map;
    uint64_t map_bytes;
    int fd;
} small;

struct small_way {
    enum small_kind kind;
    int workers, slots; /* slots: batches in memory, with the one that the consumer has */
    bool maps;
    uint64_t samples;
};

/* ---- the data ---- */

static void small_tar_header(FILE *f, uint64_t i, uint64_t n) {
    char h[SMALL_BLOCK] = {0};
    unsigned sum = 0;
    snprintf(h, 100, "%06d.x", (int)i);
    snprintf(h + 124, 12, "%011o", (unsigned)n);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    for (size_t k = 0; k < sizeof h; k++) sum += (unsigned char)h[k];
    snprintf(h + 148, 8, "%06o", sum);
    fwrite(h, 1, sizeof h, f);
}

/* Write item i of a file, and note its place. */
static void small_write(FILE *f, enum small_kind kind, uint64_t i) {
    static const char zeros[SMALL_BLOCK];
    static char text[SMALL_ROOM];
    uint64_t n = kind == SMALL_FILES ? SMALL_ROOM : 8 + dlp_hash(1, i, 0, 0) % (SMALL_LINE - 7);
    memset(text, 'w', sizeof text);
    if (kind == SMALL_TOKENS) {
        n = (SMALL_WINDOW + 1) * 2;
        for (uint64_t k = 0; k < n; k++) text[k] = (char)dlp_hash(1, i, k, 0);
    }
    if (kind == SMALL_TAR) small_tar_header(f, i, n);
    small.at[i] = (uint64_t)ftell(f);
    small.bytes[i] = n;
    if (kind == SMALL_TOKENS && i < SMALL_ITEMS - 1) n -= 2; /* windows share a token */
    fwrite(text, 1, n, f);
    if (kind == SMALL_LINES) putc('\n', f);
    if (kind == SMALL_TAR) fwrite(zeros, 1, (SMALL_BLOCK - n % SMALL_BLOCK) % SMALL_BLOCK, f);
    if (kind == SMALL_TAR && i == SMALL_ITEMS - 1)
        for (int k = 0; k < 2; k++) fwrite(zeros, 1, sizeof zeros, f);
}

static const char *small_file_path(uint64_t i) {
    static _Thread_local char path[480];
    snprintf(path, sizeof path, "%s/%05d", small.path, (int)i);
    return path;
}

static void small_make_file(enum small_kind kind) {
    const int32_t head[SMALL_HEADER / 4] = {20240520, 1, SMALL_ITEMS * SMALL_WINDOW + 1};
    FILE *f = fopen(small.path, "wb");
    struct stat st;
    if (f == NULL) fail(small.path);
    if (kind == SMALL_TOKENS) fwrite(head, 1, sizeof head, f);
    for (uint64_t i = 0; i < SMALL_ITEMS; i++) small_write(f, kind, i);
    if (fclose(f) != 0 || (small.fd = open(small.path, O_RDONLY | O_CLOEXEC)) < 0 ||
        fstat(small.fd, &st) != 0)
        fail(small.path);
    small.map_bytes = (uint64_t)st.st_size;
    small.map = mmap(NULL, small.map_bytes, PROT_READ, MAP_SHARED, small.fd, 0);
    if (small.map == MAP_FAILED) fail(small.path);
}

static void small_make(enum small_kind kind) {
    dlp_permutation order;
    snprintf(small.path, sizeof small.path, "%s/small", dir);
    small.batch = kind == SMALL_TOKENS ? 4 : BATCH;
    dlp_permutation_init(&order, SMALL_ITEMS, 1, 0);
    for (uint64_t i = 0; i < SMALL_ITEMS; i++)
        small.order[i] = (uint32_t)dlp_permutation_at(&order, i);
    if (kind != SMALL_FILES) {
        small_make_file(kind);
        return;
    }
    if (mkdir(small.path, 0700) != 0) fail(small.path);
    for (uint64_t i = 0; i < SMALL_ITEMS; i++) {
        FILE *f = fopen(small_file_path(i), "wb");
        if (f == NULL) fail(small.path);
        small_write(f, kind, i);
        fclose(f);
    }
}

static void small_remove(enum small_kind kind) {
    if (kind != SMALL_FILES) {
        munmap((void *)(uintptr_t)small.map, small.map_bytes);
        close(small.fd);
        unlink(small.path);
        return;
    }
    for (uint64_t i = 0; i < SMALL_ITEMS; i++) unlink(small_file_path(i));
    rmdir(small.path);
}

/* ---- by hand ---- */

static struct small_hand {
    const struct small_way *w;
    pthread_mutex_t lock;
    pthread_cond_t full, room;
    uint64_t next, taken; /* batches that were claimed; that the consumer has taken */
    bool stop, is_full[64];
    uint8_t *rows;
} hand;

static void small_item(enum small_kind kind, uint64_t i, uint8_t *to) {
    struct stat st;
    if (kind == SMALL_LINES || kind == SMALL_TOKENS) {
        memcpy(to, small.map + small.at[i], small.bytes[i]);
    } else if (kind == SMALL_TAR) {
        if (pread(small.fd, to, small.bytes[i], (off_t)small.at[i]) != (ssize_t)small.bytes[i])
            fail("pread");
    } else {
        int fd = open(small_file_path(i), O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0 || st.st_size > SMALL_ROOM ||
            pread(fd, to, (size_t)st.st_size, 0) != st.st_size)
            fail("pread");
        close(fd);
    }
}

static void *small_thread(void *arg) {
    const uint64_t slots = (uint64_t)hand.w->slots;
    pthread_mutex_lock(&hand.lock);
    for (;;) {
        while (!hand.stop && hand.next >= hand.taken + slots)
            pthread_cond_wait(&hand.room, &hand.lock);
        if (hand.stop) break;
        const uint64_t b = hand.next++;
        uint8_t *row = hand.rows + b % slots * small.batch * SMALL_ROOM;
        pthread_mutex_unlock(&hand.lock);
        for (uint64_t k = b * small.batch; k < (b + 1) * small.batch; k++, row += SMALL_ROOM)
            small_item(hand.w->kind, small.order[k % SMALL_ITEMS], row);
        pthread_mutex_lock(&hand.lock);
        hand.is_full[b % slots] = true;
        if (b == hand.taken) pthread_cond_signal(&hand.full);
    }
    pthread_mutex_unlock(&hand.lock);
    return arg;
}

static uint64_t small_sink;

/* Read a byte of each row of a batch, and count the batch. Returns false once the time is over. */
static bool small_taken(const uint8_t *row, uint64_t wide, uint64_t *n, uint64_t *begin) {
    for (uint32_t i = 0; i < small.batch; i++, row += wide) small_sink += *row;
    if (++*n == 64) *begin = dlpi_now_ns();
    return *n < 128 || *n % 16 != 0 || dlpi_now_ns() - *begin < SMALL_NS;
}

static double small_rate(uint64_t n, uint64_t begin) {
    return (double)((n - 64) * small.batch) * 1e9 / (double)(dlpi_now_ns() - begin);
}

static double small_by_hand(void *arg) {
    const struct small_way *w = arg;
    pthread_t threads[2];
    uint64_t n = 0, begin = 0;
    double rate;
    hand = (struct small_hand){.w = w,
                               .lock = PTHREAD_MUTEX_INITIALIZER,
                               .full = PTHREAD_COND_INITIALIZER,
                               .room = PTHREAD_COND_INITIALIZER,
                               .rows = rows};
    for (int i = 0; i < w->workers; i++) pthread_create(&threads[i], NULL, small_thread, NULL);
    for (bool more = true; more;) {
        const uint64_t slot = n % (uint64_t)w->slots;
        pthread_mutex_lock(&hand.lock);
        while (!hand.is_full[slot]) pthread_cond_wait(&hand.full, &hand.lock);
        pthread_mutex_unlock(&hand.lock);
        more = small_taken(rows + slot * small.batch * SMALL_ROOM, SMALL_ROOM, &n, &begin);
        pthread_mutex_lock(&hand.lock);
        hand.is_full[slot] = false;
        hand.taken++;
        pthread_cond_signal(&hand.room);
        pthread_mutex_unlock(&hand.lock);
    }
    rate = small_rate(n, begin);
    pthread_mutex_lock(&hand.lock);
    hand.stop = true;
    pthread_cond_broadcast(&hand.room);
    pthread_mutex_unlock(&hand.lock);
    for (int i = 0; i < w->workers; i++) pthread_join(threads[i], NULL);
    return rate;
}

/* ---- ours ---- */

static int small_locate(void *user, const dlp_item *item, dlp_extent *out) {
    (void)user;
    snprintf(out->room, DLP_FILES_ROOM, "%s/%05d", small.path, (int)item->index);
    return 0;
}

static dlp_source *small_open(const struct small_way *w) {
    static const dlp_field field = {"x", DLP_U8, 1, {SMALL_LINE}, 1, 0};
    static const dlp_field whole = {"x", DLP_U8, 1, {SMALL_ROOM}, 1, 0};
    const char *path = small.path;
    const dlp_lines_desc lines = {.path = path, .index = "", .maps = w->maps};
    const dlp_tar_desc tar = {
        .path = path, .index = "", .fields = &field, .n_fields = 1, .maps = w->maps};
    const dlp_files_desc files = {
        .n_items = SMALL_ITEMS, .locate = small_locate, .fields = &whole, .n_fields = 1};
    const dlp_tokens_desc tokens = {.paths = &path, .n_paths = 1, .length = SMALL_WINDOW};
    dlp_source *source = NULL;
    int rc = w->kind == SMALL_LINES   ? dlp_lines_open(&source, &lines, NULL)
             : w->kind == SMALL_TAR   ? dlp_tar_open(&source, &tar, NULL)
             : w->kind == SMALL_FILES ? dlp_files_open(&source, &files, NULL)
                                      : dlp_tokens_open(&source, &tokens, NULL);
    if (rc != DLP_OK) fail("open");
    return source;
}

static double small_by_source(void *arg) {
    struct small_way *w = arg;
    dlp_source *source = small_open(w);
    const dlp_loader_desc loader = {.source = source,
                                    .batch_size = small.batch,
                                    .num_workers = w->workers,
                                    .shuffle = 1,
                                    .seed = w->samples++,
                                    .epochs = DLP_FOREVER,
                                    .pipe = {.prefetch_factor = w->slots - 1}};
    dlp_pipe *p;
    dlp_batch *b;
    uint64_t n = 0, begin = 0;
    if (dlp_loader_open(&p, &loader, NULL) != DLP_OK) fail("dlp_loader_open");
    for (bool more = true; more;) {
        if (dlp_pipe_next(p, &b) != DLP_OK) fail("next");
        more = small_taken(b->fields[0].data, b->fields[0].bytes / b->count, &n, &begin);
        dlp_pipe_release(p, b);
    }
    double rate = small_rate(n, begin);
    dlp_pipe_close(p);
    dlp_source_close(source);
    return rate;
}

/* ---- rows of the table ---- */

static void small_measure(int rounds) {
    static const char *const name[] = {"lines", "tar", "4k", "tokens_b4_t64"};
    static const char *const peer[] = {"mmap", "pread", "pread", "mmap"};
    for (enum small_kind kind = 0; kind < SMALL_KINDS; kind++) {
        small_make(kind);
        for (int k = 0; k < 4; k++) {
            const bool fast = k >= 2;
            struct small_way w = {kind, 1 + k % 2, fast ? 17 : 3, fast && kind < SMALL_FILES, 0};
            struct series s = {0};
            char bench[64];
            struct measure m = {.bench = bench, .unit = "item/s"};
            snprintf(bench, sizeof bench, "files_%s_%s", name[kind], fast ? "fast" : "default");
            snprintf(m.extra, sizeof m.extra, ",\"workers\":%d", w.workers);
            compete(&s, "ours", "", small_by_source, &w);
            compete(&s, peer[kind], "", small_by_hand, &w);
            run_rounds(&s, bench, rounds);
            put(&m, &s, 0, 1);
        }
        small_remove(kind);
    }
}
