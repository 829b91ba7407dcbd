/* What tests of public calls need of the library's inside. A test that compiles the implementation
   itself has these as static functions; the others link tests/rig/lib.c, which is compiled once. */
#ifndef INSIDE_H
#define INSIDE_H

#include <stddef.h>
#include <stdint.h>

typedef enum inside_domain {
    INSIDE_PARTS,
    INSIDE_PART_ITEMS,
    INSIDE_ROWS,
    INSIDE_SHUFFLE_WINDOW
} inside_domain;

#if defined(DLPIPE_IMPLEMENTATION_DONE) && !defined(INSIDE_LIBRARY)
#define INSIDE static inline __attribute__((unused))
#else
#define INSIDE
#endif

INSIDE uint64_t inside_hash(inside_domain domain, uint64_t seed, uint64_t number);
INSIDE uint64_t inside_absorb(uint64_t hash, uint64_t word);
INSIDE size_t inside_state_bytes(void); /* those of a dlp_state that mean something */
/* An order's table (to be freed; NULL: it has none), and an index of it. */
INSIDE void *inside_order_table(const dlp_sampler_desc *d, uint64_t n_items);
INSIDE uint64_t inside_order_index(const dlp_sampler_desc *d, uint64_t n_items, const void *table,
                                   uint64_t epoch, uint64_t position);
/* Make a pipe of a table, and do not start it; its memory is not prepared. */
INSIDE int inside_pipe_of(dlp_pipe **out, const dlp_node *nodes, uint32_t n,
                          const dlp_pipe_desc *desc, dlp_error *err);
INSIDE int inside_pipe_fork(dlp_pipe *p);
/* As if batches 0 .. start - 1 had been fed, worked on, delivered and released. Called while the
   pipe starts, before any of its threads. */
INSIDE void inside_place(dlp_pipe *p, uint64_t start);
/* Of worker processes, and of worker number n of the pipe. */
INSIDE uint64_t inside_restarts(dlp_pipe *p);
INSIDE int32_t inside_consumer_pid(dlp_pipe *p); /* whose clock and trace are the consumer's */
INSIDE uint64_t inside_scheduled(dlp_pipe *p);   /* batches */
INSIDE int inside_workers(dlp_pipe *p);
/* Return the name of member i of a desc of workers in the library's list, and its offset in
   *offset. Returns NULL behind the last one. */
INSIDE const char *inside_workers_member(size_t i, size_t *offset);
INSIDE int inside_is_process(dlp_pipe *p, int n);
INSIDE int32_t inside_pid(dlp_pipe *p, int n); /* 0: it has not begun */
INSIDE int32_t inside_tid(dlp_pipe *p, int n);
INSIDE int inside_worker_state(dlp_pipe *p, int n); /* DLP_WORKER_* */
INSIDE uint64_t inside_running(dlp_pipe *p, int n); /* the row that a callback works on; 0: none */
INSIDE int inside_parked(dlp_pipe *p, int n);       /* rows that wait for their next try */
/* The position whose item replaces the one at a position, at the k-th try. */
INSIDE uint64_t inside_replacement(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t k,
                                   uint64_t n_samples);
INSIDE void inside_cpus_own(dlp_ranks *to, const int32_t *cpus, uint64_t n, uint64_t of_node);
INSIDE uint64_t inside_multiply(uint64_t a, uint64_t b, uint64_t *low); /* returns the high half */
INSIDE uint64_t inside_below(uint64_t n, uint64_t random); /* a number below n, of these bits */
INSIDE uint64_t inside_region_bytes(dlp_pipe *p);
INSIDE uint32_t inside_run_shift(dlp_pipe *p);   /* rows of a run, as a power of two */
INSIDE int inside_epoch_open(dlp_pipe *p);       /* not all of the present epoch is delivered */
INSIDE uint64_t inside_epoch_after(dlp_pipe *p); /* that of the batch to be delivered next */
/* A call of a callback that no worker makes: its words and errno go there. n: 0..15, which. */
INSIDE dlp_call *inside_call(int n, char *message, int32_t *errnum);
INSIDE void inside_worker_says(dlp_pipe *p, int n, int state); /* DLP_WORKER_*, in its place */
INSIDE int inside_debug(void);                    /* DLPIPE_DEBUG, or the address sanitizer */
INSIDE uint64_t inside_meminfo(const char *line); /* UINT64_MAX: it is not there */

/* Mixes and buckets. */
INSIDE uint64_t inside_mix_period(const dlp_mix *m);
INSIDE uint64_t inside_mix_samples(const dlp_mix *m);                  /* of an epoch */
INSIDE uint64_t inside_mix_weight(const dlp_mix *m, uint32_t dataset); /* draws in a period */
INSIDE uint32_t inside_mix_schedule(const dlp_mix *m, uint64_t at);    /* the dataset there */
INSIDE uint64_t inside_mix_shuffled(uint64_t items, uint64_t key, uint64_t pass, uint64_t x);
INSIDE const dlp_buckets_desc *inside_buckets_desc(const dlp_buckets *b); /* as resolved */
INSIDE uint64_t inside_buckets_positions(const dlp_buckets *b);           /* of an epoch */
INSIDE int inside_order_check(const dlp_sampler_desc *d, uint64_t n_items);

/* What a dlp_state holds. */
enum { INSIDE_GAPS = 320 };
typedef struct inside_state {
    uint64_t magic, check, n_items, seed, params;
    uint32_t global_batch;
    uint16_t order, last;
    uint64_t epoch, batch, position;
    uint32_t gaps_used, sampler_bytes;
    uint8_t sampler[DLP_SAMPLER_STATE_BYTES];
    uint8_t gaps[INSIDE_GAPS / 8];
} inside_state;
INSIDE void inside_state_seal(inside_state *s); /* write its checksum */
INSIDE uint64_t inside_epochs_most(void);

/* The tuner. Stages are those with workers, by number. */
typedef struct inside_figures {
    uint64_t busy_ns, cpu_ns, core_wait_ns;
} inside_figures;
INSIDE void inside_cpus(dlp_pipe *p, int cpus); /* as if there were so many */
INSIDE void inside_tune_every(dlp_pipe *p, uint64_t ns);
INSIDE void inside_tune_begin(dlp_pipe *p); /* it looks for the first time */
/* It looks 100 ms later: the consumer has waited for so long more, and the stage's first worker has
   these figures. */
INSIDE void inside_tune_look(dlp_pipe *p, int stage, uint64_t wait_ns, const inside_figures *to);
INSIDE inside_figures inside_figures_of(dlp_pipe *p, int stage); /* of its first worker */
INSIDE int inside_active(dlp_pipe *p, int stage);
INSIDE uint32_t inside_tune_patience(dlp_pipe *p, int stage);
INSIDE int inside_tuned(dlp_pipe *p, int stage); /* stage: its number in the pipe */

INSIDE int inside_forked(dlp_pipe *p);  /* this process is a fork of the pipe's */
INSIDE void inside_exported_lock(void); /* lock what guards lent tensors */
/* The CPUs that producers and readers of a push believe in. */
INSIDE void inside_wait_cpus(uint32_t cpus);
#ifdef DLPIPE_SHM_H
INSIDE int32_t inside_supervisor(dlp_pipe *p); /* its process */
INSIDE void inside_begins(int begins);         /* 1: another thread is about to start a pipe */

/* The record of a name. */
enum { INSIDE_NAME_PATH = 81 };
typedef struct inside_name_rec {
    uint64_t magic;
    uint32_t format, bytes;
    char name[64];
    int32_t pid, memfd;
    uint32_t uid, pad0;
    uint64_t token[2], started_real, check;
} inside_name_rec;
INSIDE void inside_name_seal(inside_name_rec *r); /* write its checksum */
INSIDE void inside_name_path(const char *name, char path[INSIDE_NAME_PATH]);
INSIDE int inside_name_fd(dlp_pipe *p); /* -1: it has no name */
/* Make a name without a pipe, and remove it. fd: its record and lock; why: [256] if it fails. */
INSIDE int inside_name_create(const char *name, int *fd, char *why);
INSIDE void inside_name_remove(const char *name, int fd);
#endif
/* Numbers that the shared implementation takes from here, so that a test may set them. */
extern uint64_t inside_input_run_ns; /* inputs come in runs that take so long */
/* Boxes of a stream beyond the least number; from INSIDE_BOXES on: as many as the library has. */
#define INSIDE_BOXES (INT64_C(1) << 20)
extern int64_t inside_boxes;
extern void (*inside_box_copies)(void *to, uint64_t bytes); /* called before items go to a box */
extern uint32_t inside_file_read_most; /* bytes that a read of a file asks for */
extern uint64_t inside_index_tell_ns, inside_index_stall_ns;
#ifdef DLPIPE_S3_H
INSIDE uint32_t inside_s3_limit(dlp_s3_io *io);   /* requests that may be in flight */
INSIDE void inside_s3_one_at_once(dlp_s3_io *io); /* in flight, for good */
INSIDE uint32_t inside_s3_out(dlp_s3_io *io, uint32_t *connections); /* operations in flight */
INSIDE int inside_s3_turn(dlp_s3_io *io, uint64_t until_ns);
/* Bytes of a body that the first connection has sent, and how many go at once at most. */
INSIDE uint64_t inside_s3_put_at(dlp_s3_io *io, uint64_t *at_once);
INSIDE int inside_s3_knows_region(dlp_s3 *s3, const char *bucket);
INSIDE int inside_s3_kin(const char *to, const char *own); /* endpoints; -1: one is none */
INSIDE void inside_s3_place(const char *bucket, const char *key, char *text, size_t size);
/* CRCs, 1: CRC-32C, 2: CRC-64/NVME. way: how; -1: as the library does. Returns the best way. */
INSIDE int inside_s3_crc_way(int kind, int way);
INSIDE uint64_t inside_s3_crc(int kind, uint64_t crc, const void *bytes, size_t n);
INSIDE uint64_t inside_s3_crc_shift(int kind, uint64_t crc, uint64_t bytes);
INSIDE int inside_s3_base64(const char *s, size_t n, size_t bytes, uint64_t *out);
#endif

#ifdef DLPIPE_IMPLEMENTATION_DONE

INSIDE uint64_t inside_hash(inside_domain domain, uint64_t seed, uint64_t number) {
    switch (domain) {
    case INSIDE_PARTS: return dlpi_hash_in(DLPI_DOMAIN_PARTS, seed, number);
    case INSIDE_PART_ITEMS: return dlpi_hash_in(DLPI_DOMAIN_PART_ITEMS, seed, number);
    case INSIDE_SHUFFLE_WINDOW: return dlpi_hash_in(DLPI_DOMAIN_SHUFFLE_WINDOW, seed, number);
    default: return dlpi_hash_in(DLPI_DOMAIN_ROWS, seed, number);
    }
}

INSIDE uint64_t inside_absorb(uint64_t hash, uint64_t word) { return dlpi_absorb(hash, word); }

INSIDE size_t inside_state_bytes(void) { return DLPI_STATE_BYTES; }

INSIDE void *inside_order_table(const dlp_sampler_desc *d, uint64_t n_items) {
    uint64_t bytes = dlpi_order_table_bytes(d, n_items);
    void *table = bytes ? malloc(bytes) : NULL;
    if (table) dlpi_order_build(d, n_items, table);
    return table;
}

INSIDE uint64_t inside_order_index(const dlp_sampler_desc *d, uint64_t n_items, const void *table,
                                   uint64_t epoch, uint64_t position) {
    dlpi_order order;
    uint64_t index;
    dlpi_order_init(&order, d, n_items, table);
    dlpi_order_block(&order, epoch, position, 1, &index);
    return index;
}

INSIDE void inside_place(dlp_pipe *p, uint64_t start) {
    uint64_t before = start - 1;
    p->schedule.published = p->base = p->after.high = start;
    p->ctl->tail = p->ctl->base = p->ctl->delivered = start;
    for (int i = 0; i < p->n_workers; i++)
        p->workers[i].low = p->workers[i].tail_seen = p->workers[i].cursor = start;
    for (uint32_t s = 0; s < p->n_slots; s++) {
        dlpi_slot_at(p, s)->header = dlpi_header(before, 1, 0, 0);
        for (int i = 0; i < p->n_work; i++) {
            dlpi_stage_words *words = dlpi_stage_words_at(p, s, p->work[i]);
            uint64_t units = i < p->n_item_work ? p->units_max : 1u;
            words->ready = before + 1;
            words->next = dlpi_gen_word(before, units);
            if (p->words_max > 1) dlpi_owners(p, words)[p->units_max] = before << 32 | p->words_max;
            for (uint32_t k = 0; k < p->words_max; k++)
                dlpi_done(words)[k] = before << 32 | UINT32_MAX;
            for (uint64_t k = 0; k < units; k++)
                dlpi_owners(p, words)[k] = dlpi_gen_word(before, 1u);
        }
        if (p->sink_stage) dlpi_stage_words_at(p, s, p->sink_stage)->ready = before + 1;
    }
}

INSIDE uint64_t inside_restarts(dlp_pipe *p) { return DLPI_LOAD_SEQ(&p->ctl->restarts); } /* I1 */
INSIDE int inside_pipe_of(dlp_pipe **out, const dlp_node *nodes, uint32_t n,
                          const dlp_pipe_desc *desc, dlp_error *err) {
    return dlpi_table_pipe(out, nodes, n, desc, err);
}
INSIDE int inside_pipe_fork(dlp_pipe *p) { return p->prepared ? p->err.code : dlpi_prepare(p); }
INSIDE int32_t inside_consumer_pid(dlp_pipe *p) { return p->consumer->block->pid; }
INSIDE uint64_t inside_scheduled(dlp_pipe *p) { return DLPI_LOAD_SEQ(&p->ctl->tail); } /* I1 */
INSIDE const char *inside_workers_member(size_t i, size_t *offset) {
    if (i >= sizeof dlpi_workers_bounds / sizeof *dlpi_workers_bounds) return NULL;
    *offset = dlpi_workers_bounds[i].offset;
    return dlpi_workers_bounds[i].field;
}

INSIDE int inside_workers(dlp_pipe *p) { return p->n_workers; }
INSIDE int inside_is_process(dlp_pipe *p, int n) { return p->workers[n].process; }
INSIDE int32_t inside_pid(dlp_pipe *p, int n) {
    return DLPI_LOAD_SEQ(&p->workers[n].block->pid); /* I1 */
}
INSIDE int32_t inside_tid(dlp_pipe *p, int n) {
    return DLPI_LOAD_SEQ(&p->workers[n].block->tid); /* I1 */
}

INSIDE int inside_worker_state(dlp_pipe *p, int n) {
    return (int)DLPI_LOAD_SEQ(&p->workers[n].block->state); /* I1 */
}
INSIDE uint64_t inside_running(dlp_pipe *p, int n) {
    return DLPI_LOAD_SEQ(&p->workers[n].block->running); /* I1 */
}
INSIDE int inside_parked(dlp_pipe *p, int n) { return (int)p->workers[n].n_parked; }

INSIDE uint64_t inside_replacement(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t k,
                                   uint64_t n_samples) {
    uint64_t key = dlpi_hash_in(DLPI_DOMAIN_REPLACEMENT, seed, epoch);
    return dlpi_below(dlpi_range_of(n_samples), dlpi_absorb(dlpi_absorb(key, position), k));
}

INSIDE void inside_cpus_own(dlp_ranks *to, const int32_t *cpus, uint64_t n, uint64_t of_node) {
    dlpi_cpus_own(to, cpus, n, of_node);
}

INSIDE uint64_t inside_multiply(uint64_t a, uint64_t b, uint64_t *low) {
    return dlpi_multiply(a, b, low);
}
INSIDE uint64_t inside_below(uint64_t n, uint64_t random) {
    return dlpi_below(dlpi_range_of(n), random);
}
INSIDE uint64_t inside_region_bytes(dlp_pipe *p) { return p->region_bytes; }
INSIDE uint32_t inside_run_shift(dlp_pipe *p) { return p->schedule.run_shift; }
INSIDE int inside_epoch_open(dlp_pipe *p) { return p->epoch_open; }
INSIDE uint64_t inside_epoch_after(dlp_pipe *p) { return p->after.spot.epoch; }

INSIDE dlp_call *inside_call(int n, char *message, int32_t *errnum) {
    static dlp_call calls[16];
    calls[n] = (dlp_call){.message = message, .errnum = errnum};
    return &calls[n];
}
INSIDE void inside_worker_says(dlp_pipe *p, int n, int state) {
    DLPI_STORE_SEQ(&p->workers[n].block->state, state); /* I1 */
}
INSIDE int inside_debug(void) { return DLPI_DEBUG; }
#if DLPI_ON_LINUX
INSIDE uint64_t inside_meminfo(const char *line) { return dlpi_read_number("/proc/meminfo", line); }
#endif

INSIDE uint64_t inside_mix_period(const dlp_mix *m) { return m->period; }
INSIDE uint64_t inside_mix_samples(const dlp_mix *m) { return m->samples; }
INSIDE uint64_t inside_mix_weight(const dlp_mix *m, uint32_t dataset) {
    return m->part[dataset].weight;
}
INSIDE uint32_t inside_mix_schedule(const dlp_mix *m, uint64_t at) {
    return m->schedule[at] >> DLPI_MIX_RANK_BITS;
}
INSIDE uint64_t inside_mix_shuffled(uint64_t items, uint64_t key, uint64_t pass, uint64_t x) {
    dlpi_mix_part part = {.items = items, .key = key};
    return dlpi_mix_shuffled(&part, pass, x);
}
INSIDE const dlp_buckets_desc *inside_buckets_desc(const dlp_buckets *b) { return &b->d; }
INSIDE uint64_t inside_buckets_positions(const dlp_buckets *b) { return b->positions; }
INSIDE int inside_order_check(const dlp_sampler_desc *d, uint64_t n_items) {
    return dlpi_order_check(d, n_items, NULL);
}

_Static_assert(sizeof(inside_state) == DLPI_STATE_BYTES && INSIDE_GAPS == DLPI_GAPS_MAX &&
                   offsetof(inside_state, gaps_used) == offsetof(dlpi_state, gaps_used) &&
                   offsetof(inside_state, epoch) == offsetof(dlpi_state, epoch) &&
                   offsetof(inside_state, params) == offsetof(dlpi_state, params),
               "the same");
INSIDE void inside_state_seal(inside_state *s) {
    dlpi_state own;
    memcpy(&own, s, sizeof *s);
    s->check = dlpi_state_hash(&own);
}
INSIDE uint64_t inside_epochs_most(void) { return DLPI_MAX_EPOCH; }

INSIDE void inside_cpus(dlp_pipe *p, int cpus) { p->cpus = cpus; }
INSIDE void inside_tune_every(dlp_pipe *p, uint64_t ns) { p->tune.every_ns = ns; }
INSIDE void inside_tune_begin(dlp_pipe *p) {
    p->tune.looks = 0;
    dlpi_tune_look(p, UINT64_C(1) << 62);
}
INSIDE void inside_tune_look(dlp_pipe *p, int stage, uint64_t wait_ns, const inside_figures *to) {
    dlpi_worker_block *block = p->workers[p->work[stage]->first_worker].block;
    dlpi_bump(&p->ctl->wait_ns, wait_ns);
    DLPI_STORE_RLX(&block->busy_ns, to->busy_ns); /* it may note its own meanwhile */
    DLPI_STORE_RLX(&block->cpu_ns, to->cpu_ns);
    DLPI_STORE_RLX(&block->core_wait_ns, to->core_wait_ns);
    dlpi_tune_look(p, p->tune.last_ns + 100000000);
}
INSIDE inside_figures inside_figures_of(dlp_pipe *p, int stage) {
    dlpi_worker_block *block = p->workers[p->work[stage]->first_worker].block;
    return (inside_figures){DLPI_LOAD_RLX(&block->busy_ns), DLPI_LOAD_RLX(&block->cpu_ns),
                            DLPI_LOAD_RLX(&block->core_wait_ns)};
}
INSIDE int inside_active(dlp_pipe *p, int stage) { return dlpi_active(p, p->work[stage]); }
INSIDE uint32_t inside_tune_patience(dlp_pipe *p, int stage) { return p->tune.at[stage].patience; }
INSIDE int inside_tuned(dlp_pipe *p, int stage) { return p->stages[stage].tuned; }

#if defined(DLPIPE_SHM_IMPLEMENTATION_DONE) && !defined(DLPIPE_THREADS_ONLY)
INSIDE int32_t inside_supervisor(dlp_pipe *p) { return (int32_t)dlpi_shm_of(p)->supervisor; }
INSIDE void inside_begins(int begins) {
    if (begins)
        dlpi_begins_enter();
    else
        dlpi_claim_free(&dlpi_begins, 0);
}

_Static_assert(sizeof(inside_name_rec) == sizeof(dlpi_name_rec) &&
                   INSIDE_NAME_PATH == DLPI_NAME_PATH &&
                   offsetof(inside_name_rec, check) == offsetof(dlpi_name_rec, check) &&
                   offsetof(inside_name_rec, token) == offsetof(dlpi_name_rec, token) &&
                   offsetof(inside_name_rec, pid) == offsetof(dlpi_name_rec, pid),
               "the same");
INSIDE void inside_name_seal(inside_name_rec *r) {
    dlpi_name_rec own;
    memcpy(&own, r, sizeof own);
    r->check = dlpi_name_check(&own);
}
INSIDE void inside_name_path(const char *name, char path[INSIDE_NAME_PATH]) {
    dlpi_name_path(name, path);
}
INSIDE int inside_name_fd(dlp_pipe *p) { return p->name_fd; }

/* What dlpi_name_create and _remove look at. */
static inline void inside_name_pipe(dlp_pipe *p, dlpi_pipe_rec *rec, const char *name, int fd) {
    memset(p, 0, sizeof *p);
    memset(rec, 0, sizeof *rec);
    rec->pid = (int32_t)getpid();
    p->region = (uint8_t *)rec;
    p->name_fd = fd;
    dlpi_copy_text(p->shm_name, sizeof p->shm_name, name);
}
INSIDE int inside_name_create(const char *name, int *fd, char *why) {
    dlpi_pipe_rec rec;
    dlp_pipe p;
    int rc;
    inside_name_pipe(&p, &rec, name, -1);
    rc = dlpi_name_create(&p);
    *fd = p.name_fd;
    dlpi_copy_text(why, 256, p.err.message);
    return rc;
}
INSIDE void inside_name_remove(const char *name, int fd) {
    dlpi_pipe_rec rec;
    dlp_pipe p;
    inside_name_pipe(&p, &rec, name, fd);
    dlpi_name_remove(&p);
}
#endif

INSIDE int inside_forked(dlp_pipe *p) { return dlpi_forked(p); }
INSIDE void inside_exported_lock(void) { dlpi_mutex_lock(&dlpi_exported_lock); }

INSIDE void inside_wait_cpus(uint32_t cpus) { DLPI_STORE_RLX(&dlpi_wait_cpus, cpus); }

#ifdef DLPIPE_S3_IMPLEMENTATION_DONE
INSIDE uint32_t inside_s3_limit(dlp_s3_io *io) { return (uint32_t)dlpi_s3_limit(&io->patience); }
INSIDE void inside_s3_one_at_once(dlp_s3_io *io) {
    io->patience.limit = 1024;
    io->patience.throttled_until_ns = UINT64_MAX;
}
INSIDE uint32_t inside_s3_out(dlp_s3_io *io, uint32_t *connections) {
    *connections = (uint32_t)io->connections_out;
    return io->over.out;
}

INSIDE int inside_s3_turn(dlp_s3_io *io, uint64_t until_ns) { return dlpi_s3_turn(io, until_ns); }

INSIDE uint64_t inside_s3_put_at(dlp_s3_io *io, uint64_t *at_once) {
    *at_once = DLPI_S3_AT_ONCE;
    return io->connections[0].put_at;
}

INSIDE int inside_s3_knows_region(dlp_s3 *s3, const char *bucket) {
    return dlpi_s3_region_find(s3->common, bucket) != NULL;
}

INSIDE int inside_s3_crc_way(int kind, int way) {
    dlpi_s3_crc_begin();
    dlpi_s3_crc_tables[kind].way = way < 0 ? dlpi_s3_crc_way() : way;
    return dlpi_s3_crc_way();
}

INSIDE uint64_t inside_s3_crc(int kind, uint64_t crc, const void *bytes, size_t n) {
    dlpi_s3_crc_begin();
    return dlpi_s3_crc_add(kind, crc, bytes, n);
}

INSIDE uint64_t inside_s3_crc_shift(int kind, uint64_t crc, uint64_t bytes) {
    return dlpi_s3_crc_shift(kind, crc, bytes);
}

INSIDE int inside_s3_base64(const char *s, size_t n, size_t bytes, uint64_t *out) {
    return dlpi_s3_base64_number(s, n, bytes, out);
}

INSIDE int inside_s3_kin(const char *to, const char *own) {
    dlpi_s3_endpoint a, b;
    const char *why;
    if (dlpi_s3_endpoint_parse(&a, to, &why) != DLP_OK ||
        dlpi_s3_endpoint_parse(&b, own, &why) != DLP_OK)
        return -1;
    return dlpi_s3_kin(&a, &b);
}

INSIDE void inside_s3_place(const char *bucket, const char *key, char *text, size_t size) {
    dlpi_s3_src_place(bucket, key, text, size);
}
#endif

#endif
#endif
