/* What a program writes by hand in place of a filter, two branches that are mixed, an expander, and
   a filter with a window behind it: threads and one mutex, in the order of the inputs. It has the
   items and the consumer of the rows of bench_compose.c beside which it runs. It does not have what
   else is in dlpipe: errors, states, counts of inputs, plans, worker processes.

   A worker claims RUN inputs, and makes their items one behind the other in a chunk. The consumer
   takes the chunks in order. What batches consist of is known only then, so it copies the items
   into the batch. Two branches need no copy: place k of the mix is an item of branch k % 2. With a
   window it collects addresses until the window is full, shuffles the addresses, and copies the
   items into batches; meanwhile workers fill chunks of the next window. */
enum { RUN = 32, HAND_WINDOW = 1024, SOURCE_MIB = 64 };

enum made_verb { FILTERED, MIXED_IN, EXPANDED, WINDOWED };

/* Items of item_bytes, out of a memory of 2^bits of them. */
static struct made {
    uint8_t *source;
    uint64_t item_bytes, mask;
} made;

static uint8_t *made_at(uint64_t index) { /* not one behind the other */
    return made.source + (index * 2654435761u & made.mask) * made.item_bytes;
}

static bool made_keeps(const uint8_t *item) { return (item[0] & 1) == 0; } /* half of them */

static uint64_t made_count(const uint8_t *item) { return item[0] % (MADE + 1u); } /* 2 of 1 input */

static void made_open(uint64_t item_bytes) {
    uint64_t n = 1;
    while (2 * n * item_bytes <= SOURCE_MIB * MIB) n *= 2;
    made = (struct made){malloc(n * item_bytes), item_bytes, n - 1};
    for (uint64_t i = 0, x = 1; i < n * item_bytes; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(made.source + i, &(uint64_t){x ^ x >> 32}, 8);
    }
}

/* Read a byte of each line of each row. */
static uint64_t made_sum(const uint8_t *rows, uint64_t n) {
    uint64_t sum = 0;
    for (const uint8_t *end = rows + n * made.item_bytes; rows < end; rows += made.item_bytes)
        for (uint64_t at = 0; at < made.item_bytes; at += DLPI_LINE) sum += rows[at];
    return sum;
}

struct hand {
    enum made_verb verb;
    pthread_mutex_t lock;
    pthread_cond_t room, ready;
    uint8_t *memory;
    uint32_t *items; /* [chunks] items in a chunk; UINT32_MAX: it is not filled */
    uint64_t chunk_bytes, chunks, n_chunks, claimed, freed, wanted; /* wanted: the next to take */
};

static uint8_t *hand_chunk(const struct hand *h, uint64_t c) {
    return h->memory + c % h->chunks * h->chunk_bytes;
}

static uint32_t hand_make(const struct hand *h, uint64_t c) {
    uint8_t *to = hand_chunk(h, c);
    const uint64_t rows = h->verb == MIXED_IN ? BATCH : RUN, bytes = made.item_bytes;
    uint32_t n = 0;
    for (uint64_t i = c * rows; i < (c + 1) * rows && i < items; i++) {
        if (h->verb == EXPANDED) {
            const uint8_t *input = made_at(i);
            const uint64_t k = made_count(input);
            for (uint64_t j = 0; j < k; j++) memcpy(to + n++ * bytes, made_at(i * MADE + j), bytes);
        } else {
            memcpy(to + n * bytes, made_at(h->verb == MIXED_IN ? i / 2 : i), bytes);
            n += h->verb == MIXED_IN || made_keeps(to + n * bytes);
        }
    }
    return n;
}

static void *hand_work(void *user) {
    struct hand *h = user;
    pthread_mutex_lock(&h->lock);
    while (h->claimed < h->n_chunks) {
        const uint64_t c = h->claimed;
        if (c - h->freed == h->chunks) {
            pthread_cond_wait(&h->room, &h->lock);
            continue;
        }
        h->claimed++;
        pthread_mutex_unlock(&h->lock);
        const uint32_t n = hand_make(h, c);
        pthread_mutex_lock(&h->lock);
        h->items[c % h->chunks] = n;
        if (c == h->wanted) pthread_cond_signal(&h->ready);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* Take the next chunk, and give those before `keep` back. Returns its items. */
static uint32_t hand_next(struct hand *h, uint64_t keep) {
    uint32_t n;
    pthread_mutex_lock(&h->lock);
    if (h->freed < keep) pthread_cond_broadcast(&h->room);
    for (; h->freed < keep; h->freed++) h->items[h->freed % h->chunks] = UINT32_MAX;
    while ((n = h->items[h->wanted % h->chunks]) == UINT32_MAX)
        pthread_cond_wait(&h->ready, &h->lock);
    h->wanted++;
    pthread_mutex_unlock(&h->lock);
    return n;
}

/* The batches of the consumer, and the clock that starts when they are warm. */
struct hand_batches {
    uint8_t *rows;
    uint64_t n, rows_in, warm, begin;
};

static void hand_batch(struct hand_batches *b, const uint8_t *rows, uint64_t n) {
    checksum += made_sum(rows, n);
    b->rows_in += n;
    b->n = 0;
    if (b->begin == 0 && b->rows_in >= WARM * BATCH) {
        b->begin = dlpi_now_ns();
        b->warm = b->rows_in;
    }
}

static void hand_add(struct hand_batches *b, const uint8_t *item) {
    memcpy(b->rows + b->n++ * made.item_bytes, item, made.item_bytes);
    if (b->n == BATCH) hand_batch(b, b->rows, BATCH);
}

/* Give all items of a window in a shuffled order. */
static void hand_shuffle(struct hand_batches *b, const uint8_t **at, uint64_t n) {
    static uint64_t x = 88172645463325252u;
    for (uint64_t i = n; i > 0; i--) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const uint64_t k = x % i;
        const uint8_t *item = at[k];
        at[k] = at[i - 1];
        hand_add(b, item);
    }
}

static void hand_consume(struct hand *h, struct hand_batches *b) {
    static const uint8_t *at[HAND_WINDOW];
    uint64_t n_at = 0, keep = 0;
    for (uint64_t c = 0; c < h->n_chunks; c++) {
        const uint32_t n = hand_next(h, h->verb == WINDOWED ? keep : c);
        const uint8_t *chunk = hand_chunk(h, c);
        if (h->verb == MIXED_IN) hand_batch(b, chunk, n);
        for (uint32_t i = 0; h->verb != MIXED_IN && i < n; i++) {
            if (h->verb != WINDOWED) {
                hand_add(b, chunk + i * made.item_bytes);
                continue;
            }
            at[n_at++] = chunk + i * made.item_bytes;
            if (n_at < HAND_WINDOW) continue;
            hand_shuffle(b, at, n_at);
            n_at = 0;
            keep = c;
        }
    }
    if (n_at > 0) hand_shuffle(b, at, n_at);
    if (b->n > 0) hand_batch(b, b->rows, b->n);
}

/* Run all inputs. Returns the ns of each. */
static double by_hand(enum made_verb verb, int workers) {
    const uint64_t rows = verb == MIXED_IN ? BATCH : RUN, most = verb == EXPANDED ? MADE : 1;
    struct hand h = {.verb = verb, .chunk_bytes = rows * most * made.item_bytes};
    struct hand_batches b = {.rows = malloc(BATCH * made.item_bytes)};
    pthread_t thread[16];
    h.chunks = verb == WINDOWED ? 5 * HAND_WINDOW / RUN : (PREFETCH + 1) * BATCH / rows;
    h.n_chunks = (items + rows - 1) / rows;
    h.memory = aligned_alloc(DLPI_LINE, h.chunks * h.chunk_bytes);
    h.items = malloc(h.chunks * sizeof *h.items);
    for (uint64_t i = 0; i < h.chunks; i++) h.items[i] = UINT32_MAX;
    pthread_mutex_init(&h.lock, NULL);
    pthread_cond_init(&h.room, NULL);
    pthread_cond_init(&h.ready, NULL);
    for (int i = 0; i < workers; i++) pthread_create(&thread[i], NULL, hand_work, &h);
    hand_consume(&h, &b);
    const double ns = (double)(dlpi_now_ns() - b.begin) * (double)b.rows_in /
                      (double)(b.rows_in - b.warm) / (double)items;
    for (int i = 0; i < workers; i++) pthread_join(thread[i], NULL);
    if (b.begin == 0) failures++;
    free(h.memory);
    free(h.items);
    free(b.rows);
    return ns;
}
