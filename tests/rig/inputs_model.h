/* needs: pictures */
/* What must come out of a pipe whose batches are made of inputs that nobody has counted: the rows
   of each stream, written down one after the other by the words of >>found, >>expand and >>pack. Of
   the library only keyed permutations are called. Needs keyed.h. */
#ifndef INPUTS_MODEL_H
#define INPUTS_MODEL_H

#define MOST_EPOCHS 3
#define MOST_STREAMS 12
#define MOST_INPUTS 64
#define MOST_COUNT 12     /* items of an input */
#define LONGEST 40        /* tokens of a document */
#define MOST_ROWS 1600    /* of a stream in an epoch */
#define MOST_PIECES 12000 /* of these rows */
#define FAR_STEPS 60      /* so many batches of an epoch without an end are looked at */

enum { OF_PARTS, OF_EXPAND, OF_FILTER, OF_CUT, OF_FIT, KINDS };
enum { ENDS_ALONE, ENDS_AGREE, ENDS_UNEVEN };
enum { OF_ONE, OF_PARTS_COUNTED, OF_PARTS_FOUND, OF_EXPANDED };

typedef struct order_plan {
    int kind;
    int made; /* of packing: OF_ONE, or what makes several documents of an input */
    uint32_t inputs, streams, batch;
    uint64_t seed;
    int shuffle, shuffle_items, weighed;
    uint32_t window, before; /* before: documents of a window that stands before the pack */
    uint32_t group;          /* items of the window that stay together, by length; 0: none do */
    uint32_t behind;         /* rows of a window that stands behind the pack */
    int64_t steps;           /* 0; DLP_FOREVER */
    int last, ends, epochs;
    uint32_t tokens, overlap, segments;
    int longer;
    uint32_t count[MOST_INPUTS]; /* items, or tokens; 0 also for what can't be read */
    uint64_t weight[MOST_INPUTS];
} order_plan;

typedef struct piece {
    uint32_t input, first, n, pass;
    uint32_t begins, number; /* of documents: the first token, and the number in the input */
} piece;

typedef struct row {
    uint32_t at, n, tokens; /* of the stream's pieces */
    uint32_t window;        /* of OF_FIT: which of the stream */
    uint64_t after[3];      /* of packing: ordinal, used and place of the cursor after it */
} row;

typedef struct stream {
    uint32_t n_rows, n_pieces;
    int over; /* it had no room here, or passes without anything: not to be run */
    row rows[MOST_ROWS];
    piece pieces[MOST_PIECES];
} stream;

static stream streams_[MOST_EPOCHS][MOST_STREAMS];

static inline int packs(const order_plan *o) { return o->kind == OF_CUT || o->kind == OF_FIT; }

static row *row_begin(stream *x) {
    row *r = &x->rows[x->n_rows < MOST_ROWS ? x->n_rows++ : MOST_ROWS - 1];
    x->over |= x->n_rows == MOST_ROWS;
    *r = (row){.at = x->n_pieces};
    return r;
}

static void piece_put(stream *x, row *r, piece p) {
    x->over |= x->n_pieces + 1 >= MOST_PIECES;
    if (x->over) return;
    x->pieces[x->n_pieces++] = p;
    r->n++;
    r->tokens += p.n;
}

/* ---- inputs of a stream ---- */

/* Who has which inputs by weight: the heaviest of all that are left to whoever has the least. */
static uint32_t members_weighed(const order_plan *o, uint64_t s, uint32_t *members) {
    uint64_t load[MOST_STREAMS] = {0}, n = o->inputs;
    uint32_t owner[MOST_INPUTS], many = 0;
    int dealt[MOST_INPUTS] = {0};
    for (uint64_t turn = 0; turn < n; turn++) {
        uint64_t best = n, most = 0, to = 0;
        for (uint64_t j = 0; j < n; j++) {
            uint64_t i = o->shuffle ? permuted(n, keyed(34, o->seed, UINT64_MAX), 0, j) : j;
            uint64_t w = o->weight[i] ? o->weight[i] : 1;
            if (!dealt[i] && w > most) best = i, most = w;
        }
        for (uint64_t k = 1; k < o->streams; k++)
            if (load[k] < load[to]) to = k;
        load[to] += most;
        dealt[best] = 1;
        owner[best] = (uint32_t)to;
    }
    for (uint32_t i = 0; i < n; i++)
        if (owner[i] == s) members[many++] = i;
    return many;
}

/* Those of a pass, in their order. */
static uint32_t pass_of(const order_plan *o, uint64_t epoch, uint64_t s, uint64_t pass,
                        uint32_t *to) {
    uint64_t n = o->inputs, key = keyed(34, o->seed, pass);
    uint32_t many = 0, members[MOST_INPUTS];
    if (o->weighed) {
        many = members_weighed(o, s, members);
        for (uint32_t j = 0; j < many; j++)
            to[j] = members[o->shuffle ? permuted(many, mixed(key, s), epoch, j) : j];
        return many;
    }
    for (uint64_t j = s; j < n; j += o->streams)
        to[many++] = (uint32_t)(o->shuffle ? permuted(n, key, epoch, j) : j);
    return many;
}

/* ---- items, with windows ---- */

typedef struct element {
    piece p;
    uint64_t ordinal, used;
} element;

static uint32_t tail_of(uint64_t input, uint64_t number); /* length of the item's ragged field */

/* The item at place j of a window of k items, in groups: sorted by length, cut, and the groups
   permuted. */
static uint32_t grouped(const order_plan *o, const element *at, uint32_t k, uint64_t key,
                        uint64_t epoch, uint32_t j) {
    uint32_t whole = k / o->group, nth = j, less;
    if (j / o->group < whole)
        nth = (uint32_t)permuted(whole, key, epoch, j / o->group) * o->group + j % o->group;
    for (uint32_t i = 0; i < k; i++) { /* how many are before item i? */
        const uint32_t length = tail_of(at[i].p.input, at[i].p.first);
        less = 0;
        for (uint32_t other = 0; other < k; other++) {
            const uint32_t of = tail_of(at[other].p.input, at[other].p.first);
            less += of < length || (of == length && other < i);
        }
        if (less == nth) return i;
    }
    return k;
}

static void write_windows(const order_plan *o, uint64_t epoch, uint64_t s, element *at,
                          uint32_t n) {
    static element was[MOST_ROWS];
    memcpy(was, at, n * sizeof *at);
    for (uint32_t from = 0; from < n; from += o->window) {
        uint32_t k = n - from < o->window ? n - from : o->window;
        uint64_t h = keyed(36, o->seed, s);
        h = mixed(h, from ? was[from - 1].ordinal : 0);
        h = mixed(h, from ? was[from - 1].used : 0);
        for (uint32_t i = 0; i < k; i++)
            at[from + i] = was[from + (o->group ? grouped(o, was + from, k, h, epoch, i)
                                                : permuted(k, h, epoch, i))];
    }
}

/* want: items of the epoch; 0: those of one pass. exact: it ends with them. */
static void write_items(const order_plan *o, uint64_t epoch, uint64_t s, uint32_t want, int exact) {
    static element all[MOST_ROWS];
    stream *x = &streams_[epoch][s];
    uint32_t n = 0, order[MOST_INPUTS], empty = 0;
    for (uint64_t pass = 0; pass == 0 || n < want; pass++) {
        uint32_t each = pass_of(o, epoch, s, pass, order);
        for (uint32_t i = 0; i < each; i++) {
            uint64_t key = mixed(keyed(35, o->seed, order[i]), pass);
            uint32_t count = o->count[order[i]];
            empty = count ? 0 : empty + 1;
            x->over |= want > 0 && empty > each;
            for (uint32_t k = 0; k < count && n < MOST_ROWS; k++) {
                uint32_t number = o->shuffle_items ? (uint32_t)permuted(count, key, epoch, k) : k;
                all[n++] =
                    (element){{order[i], number, 1, (uint32_t)pass, 0, 0}, pass * each + i, k + 1};
            }
        }
        x->over |= n == MOST_ROWS || each == 0;
        if (x->over) return;
    }
    if (exact && n > want) n = want;
    if (o->window) write_windows(o, epoch, s, all, n);
    for (uint32_t i = 0; i < n; i++) piece_put(x, row_begin(x), all[i].p);
}

/* ---- packing ---- */

typedef struct document {
    uint32_t input, pass, n, first, number;
    uint64_t ordinal, used; /* documents of its input up to this one that have tokens */
} document;

/* The tokens of an input are those of its documents, one after the other. Returns where the one
   that begins at `first` ends. */
static uint32_t document_end(const order_plan *o, uint32_t input, uint32_t first) {
    const uint32_t end = first + 1 + (uint32_t)mixed(mixed(98, input), first) % 12;
    return o->made == OF_ONE || end > o->count[input] ? o->count[input] : end;
}

/* Each third of them is none, and left out. */
static int is_document(const order_plan *o, uint32_t number) {
    return o->made == OF_ONE || number % 3 != 2;
}

/* True if there is document `number` of an input, or a place that has none. */
static int document_of(const order_plan *o, uint32_t input, uint32_t number, document *d) {
    d->input = input;
    d->first = d->n = 0;
    for (d->number = 0;; d->number++) {
        d->n = is_document(o, d->number) ? document_end(o, input, d->first) - d->first : 0;
        if (d->first == o->count[input]) return 0;
        if (d->number == number) return 1;
        d->first += d->n;
    }
}

#define MOST_DOCUMENTS 6000

static uint32_t write_documents(const order_plan *o, uint64_t epoch, uint64_t s, uint64_t passes,
                                document *to) {
    uint32_t n = 0, order[MOST_INPUTS];
    for (uint64_t pass = 0; pass < passes; pass++) {
        uint32_t each = pass_of(o, epoch, s, pass, order);
        for (uint32_t i = 0; i < each && n < MOST_DOCUMENTS; i++) {
            document d = {.pass = (uint32_t)pass, .ordinal = pass * each + i};
            for (uint32_t k = 0; document_of(o, order[i], k, &d) && n < MOST_DOCUMENTS; k++)
                if (d.n > 0 && !(o->kind == OF_FIT && o->longer && d.n > o->tokens))
                    d.used++, to[n++] = d;
        }
    }
    return n;
}

/* Shuffle documents in windows of o->before. more: further passes follow. Returns how many
   documents are in windows that are whole, or the last of an epoch. */
static uint32_t mix_documents(const order_plan *o, uint64_t epoch, uint64_t s, int more,
                              document *at, uint32_t n) {
    static document was[MOST_DOCUMENTS];
    if (o->before == 0) return n;
    memcpy(was, at, n * sizeof *at);
    for (uint32_t from = 0; from < n; from += o->before) {
        uint32_t k = n - from < o->before ? n - from : o->before;
        uint64_t h = keyed(36, o->seed, s);
        if (more && k < o->before) return from;
        h = mixed(h, from ? was[from - 1].ordinal : 0);
        h = mixed(h, from ? was[from - 1].used : 0);
        for (uint32_t i = 0; i < k; i++) at[from + i] = was[from + permuted(k, h, epoch, i)];
    }
    return n;
}

static void write_cut(const order_plan *o, stream *x, const document *d, uint32_t n) {
    uint32_t at = 0, from = 0; /* the next row begins at token `from` of document `at` */
    while (at < n && !x->over) {
        row *r = row_begin(x);
        while (at < n && r->tokens < o->tokens && r->n < o->segments && !x->over) {
            uint32_t room = o->tokens - r->tokens, left = d[at].n - from;
            uint32_t take = left < room ? left : room;
            piece_put(x, r,
                      (piece){d[at].input, d[at].first + from, take, d[at].pass, d[at].first,
                              d[at].number});
            from += take;
            if (from == d[at].n) at++, from = 0;
        }
        if (at == n) return;
        for (uint32_t back = o->overlap; back > 0; back--) { /* these come once more */
            if (from == 0) from = d[--at].n;
            from--;
        }
        r->after[0] = d[from > 0 ? at : at - 1].ordinal;
        r->after[1] = from > 0 ? d[at].first + from : d[at - 1].first + d[at - 1].n;
    }
}

/* The rows of one window, the naive way: each time the longest that is left, into the best row. */
static void write_window(const order_plan *o, stream *x, const document *d, uint32_t n,
                         uint32_t number) {
    static piece left[256 * LONGEST], in[256 * LONGEST];
    static uint32_t row_of[256 * LONGEST], tokens[256 * LONGEST], many[256 * LONGEST];
    uint32_t k = 0, rows = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t at = 0; at < d[i].n; at += o->tokens) {
            uint32_t rest = d[i].n - at;
            left[k++] = (piece){d[i].input, d[i].first + at, rest < o->tokens ? rest : o->tokens,
                                d[i].pass,  d[i].first,      d[i].number};
        }
    for (uint32_t turn = 0; turn < k; turn++) {
        uint32_t long_at = 0, to = rows;
        for (uint32_t i = 1; i < k; i++)
            if (left[i].n > left[long_at].n) long_at = i;
        for (uint32_t r = 0; r < rows; r++)
            if (tokens[r] + left[long_at].n <= o->tokens && many[r] < o->segments &&
                (to == rows || tokens[r] > tokens[to]))
                to = r;
        if (to == rows) tokens[rows] = many[rows] = 0, rows++;
        in[turn] = left[long_at];
        row_of[turn] = to;
        tokens[to] += left[long_at].n;
        many[to]++;
        left[long_at].n = 0;
    }
    for (uint32_t r = 0; r < rows && !x->over; r++) {
        row *to = row_begin(x);
        const document *end = r + 1 < rows ? &d[0] : &d[n - 1];
        to->window = number;
        to->after[0] = end->ordinal;
        to->after[1] = end->used - (r + 1 < rows);
        to->after[2] = r + 1 < rows ? r + 1 : 0;
        for (uint32_t i = 0; i < k; i++)
            if (row_of[i] == r) piece_put(x, to, in[i]);
    }
}

static void write_rows(const order_plan *o, uint64_t epoch, uint64_t s, uint32_t want) {
    static document all[MOST_DOCUMENTS];
    stream *x = &streams_[epoch][s];
    for (uint64_t passes = 1;; passes *= 2) {
        const uint32_t written = write_documents(o, epoch, s, passes, all);
        const uint32_t n = mix_documents(o, epoch, s, want > 0, all, written);
        x->n_rows = x->n_pieces = 0;
        if (o->kind == OF_CUT) write_cut(o, x, all, n);
        for (uint32_t i = 0; o->kind == OF_FIT && i < n; i += o->window)
            if (want == 0 || n - i >= o->window)
                write_window(o, x, all + i, n - i < o->window ? n - i : o->window, i / o->window);
        x->over |= written == MOST_DOCUMENTS || (want > 0 && passes > 2 && written < passes / 2);
        if (x->over || want == 0 || x->n_rows > want + 1) return;
    }
}

/* Shuffle packed rows in windows of o->behind. want: as in write_items. */
static void mix_rows(const order_plan *o, uint64_t epoch, uint64_t s, uint32_t want) {
    static row was[MOST_ROWS];
    stream *x = &streams_[epoch][s];
    if (o->behind == 0) return;
    if (o->steps > 0 && x->n_rows > want) x->n_rows = want;
    memcpy(was, x->rows, x->n_rows * sizeof *was);
    for (uint32_t from = 0; from < x->n_rows; from += o->behind) {
        const uint64_t *at = from ? was[from - 1].after : (const uint64_t[3]){0, 0, 0};
        uint32_t k = x->n_rows - from < o->behind ? x->n_rows - from : o->behind;
        uint64_t h = mixed(keyed(36, o->seed, s), at[0]);
        h = mixed(h, at[2] ? mixed(at[1], at[2]) : at[1]);
        for (uint32_t i = 0; i < k; i++) x->rows[from + i] = was[from + permuted(k, h, epoch, i)];
    }
}

/* ---- epochs ---- */

static uint32_t rows_each(const order_plan *o) { return o->batch / o->streams; }

/* ---- errors: inputs that are not there, and come later ---- */

/* The input that the cursor of a stream stands after, with nothing of it left, `given` rows being
   given; MOST_INPUTS: it stands in one. A row may begin with what is repeated of the one before. */
static uint32_t input_behind(const order_plan *o, const stream *x, uint32_t given) {
    const row *last = &x->rows[given - 1];
    const piece *next = &x->pieces[last[1].at], *p = &x->pieces[last->at + last->n - 1];
    if (given == x->n_rows) return p->input;
    if (o->kind != OF_CUT)
        return p->input == next->input && p->pass == next->pass ? MOST_INPUTS : p->input;
    if (next->first > 0) return MOST_INPUTS;
    for (uint32_t j = 1; j < last->n; j++) { /* it begins with a document that is repeated */
        const piece *q = &x->pieces[last->at + j];
        if (q->input == next->input && q->pass == next->pass) return q[-1].input;
    }
    return p->input;
}

/* An input without rows is left out of what is written down, so its place in a stream is not known
   here. */
static int has_rows(const order_plan *o, uint32_t input) {
    document d;
    if (o->kind != OF_FIT || !o->longer) return o->count[input] > 0;
    for (uint32_t k = 0; document_of(o, input, k, &d); k++)
        if (d.n > 0 && d.n <= o->tokens) return 1;
    return 0;
}

/* Nobody knows the rows of an input that can't be read. A stream is known up to the first of these
   after its cursor, which stands behind `given` rows: returns so many rows of the epoch, UINT32_MAX
   if there is no such input. A window is known once all its items are. */
static uint32_t items_known(const order_plan *o, uint64_t epoch, uint64_t s, uint32_t given,
                            const int *torn) {
    const stream *x = &streams_[epoch][s];
    uint32_t c = 0, order[MOST_INPUTS], from = o->window ? given / o->window * o->window : given;
    for (uint64_t pass = 0; pass == 0 || (o->steps != 0 && c < x->n_rows); pass++) {
        uint32_t each = pass_of(o, epoch, s, pass, order);
        for (uint32_t i = 0; i < each && (o->steps == 0 || c < x->n_rows); i++) {
            c += o->count[order[i]];
            if (!torn[order[i]] || c <= from) continue;
            c -= o->count[order[i]];
            return o->window ? c / o->window * o->window : c;
        }
    }
    return UINT32_MAX;
}

/* Where a row begins: this token of this document. */
typedef struct begin {
    uint32_t document, first;
} begin;

/* Rows of documents that are cut, up to document n, by where they begin; returns how many are
   complete. at[that number] is where the next one begins. */
static uint32_t cut_begins(const order_plan *o, const document *d, uint32_t n, begin *at) {
    uint32_t rows = 0;
    for (at[0] = (begin){0, 0}; rows + 1 < MOST_ROWS; rows++) {
        begin x = at[rows];
        uint32_t tokens = 0, segments = 0, skip;
        while (x.document < n && tokens < o->tokens && segments < o->segments) {
            uint32_t left = d[x.document].n - x.first, room = o->tokens - tokens;
            tokens += left < room ? left : room;
            segments++;
            x = (begin){x.document + 1, 0};
        }
        if (tokens < o->tokens && segments < o->segments) return rows;
        skip = tokens - o->overlap;
        for (x = at[rows]; skip >= d[x.document].n - x.first; x = (begin){x.document + 1, 0})
            skip -= d[x.document].n - x.first;
        at[rows + 1] = (begin){x.document, x.first + skip};
    }
    return rows;
}

static document documents_[MOST_DOCUMENTS];

static uint32_t documents_of(const order_plan *o, uint64_t epoch, uint64_t s) {
    return write_documents(o, epoch, s, o->steps ? MOST_DOCUMENTS : 1, documents_);
}

static uint32_t rows_of_windows(const stream *x, uint32_t windows) {
    uint32_t n = 0;
    while (n < x->n_rows && x->rows[n].window < windows) n++;
    return n;
}

static uint32_t documents_known(const order_plan *o, uint64_t epoch, uint64_t s, uint32_t given,
                                const int *torn) {
    static begin at[MOST_ROWS];
    static document in_order[MOST_DOCUMENTS];
    const stream *x = &streams_[epoch][s];
    const uint32_t n = documents_of(o, epoch, s), whole = o->before > 0 ? o->before : 1;
    uint32_t from = 0, mixed_ones;
    if (given > 0 && given == x->n_rows) return UINT32_MAX;
    memcpy(in_order, documents_, n * sizeof *in_order);
    mixed_ones = mix_documents(o, epoch, s, o->steps != 0, in_order, n);
    if (o->kind == OF_FIT && given < x->n_rows) from = x->rows[given].window * o->window;
    if (o->kind == OF_CUT && cut_begins(o, in_order, mixed_ones, at) >= given)
        from = at[given].document;
    from -= from % whole; /* a window is known once all its documents are */
    while (from < n && !torn[documents_[from].input]) from++;
    if (from == n) return UINT32_MAX;
    from -= from % whole;
    if (o->kind == OF_FIT) return rows_of_windows(x, from / o->window);
    return cut_begins(o, in_order, from, at);
}

/* The inputs that the cursor behind `given` rows of documents that fit has a stream read again. */
static int fit_again(const order_plan *o, uint64_t epoch, uint64_t s, uint32_t given,
                     uint32_t input) {
    const stream *x = &streams_[epoch][s];
    uint32_t n = documents_of(o, epoch, s), end;
    if (given == 0 || (given < x->n_rows && x->rows[given].window == x->rows[given - 1].window))
        return 0;
    end = (x->rows[given - 1].window + 1) * o->window;
    return documents_[(end < n ? end : n) - 1].input == input;
}

/* Is this input read again where batch k is the next one, though all of it is given: a stream's
   cursor, or that of its window, stands after it? */
static int read_again(const order_plan *o, uint64_t epoch, uint32_t k, uint32_t input) {
    if (epoch >= (uint64_t)o->epochs) return 0;
    for (uint32_t s = 0; s < o->streams; s++) {
        const stream *x = &streams_[epoch][s];
        uint32_t given = k * rows_each(o) < x->n_rows ? k * rows_each(o) : x->n_rows;
        for (uint32_t r = 0; r < given && o->before > 0; r++)
            for (uint32_t j = 0; j < x->rows[r].n; j++)
                if (x->pieces[x->rows[r].at + j].input == input) return 1;
        if (o->kind == OF_FIT) {
            if (fit_again(o, epoch, s, given, input)) return 1;
            continue;
        }
        for (uint32_t r = 0; r < given && o->window > 0; r++)
            if (x->pieces[x->rows[r].at].input == input) return 1;
        if (given > 0 && input_behind(o, x, given) == input) return 1;
    }
    return 0;
}

/* Where an epoch fails, and where it ends if it does not: batches before that. `given` are those
   that were taken before these inputs could not be read. An epoch by DLP_LAST_DROP ends as soon as
   one stream is out; an epoch that lacks the inputs of a stream has no other end. */
typedef struct fate {
    uint32_t fails, ends, of[MOST_STREAMS]; /* of: batches before each stream lacks a row */
} fate;

static fate fate_of(const order_plan *o, uint64_t epoch, uint32_t given, const int *torn) {
    const uint32_t m = rows_each(o);
    fate f = {.fails = UINT32_MAX, .ends = UINT32_MAX};
    uint32_t most = 0, broken = 0;
    for (uint32_t s = 0; s < o->streams; s++) {
        const stream *x = &streams_[epoch][s];
        uint32_t n = given * m < x->n_rows ? given * m : x->n_rows;
        uint32_t known = (packs(o) ? documents_known : items_known)(o, epoch, s, n, torn);
        f.of[s] = known == UINT32_MAX ? known : known < n ? given : known / m;
        if (f.of[s] < f.fails) f.fails = f.of[s];
        broken += known != UINT32_MAX;
        if (known == UINT32_MAX && o->last == DLP_LAST_DROP && x->n_rows / m < f.ends)
            f.ends = x->n_rows / m;
        if ((x->n_rows + m - 1) / m > most) most = (x->n_rows + m - 1) / m;
    }
    if (o->steps > 0) f.ends = (uint32_t)o->steps;
    if (o->steps == DLP_FOREVER) f.ends = UINT32_MAX;
    if (o->steps == 0 && o->last != DLP_LAST_DROP && broken == 0) f.ends = most;
    if (f.fails >= f.ends) f.fails = UINT32_MAX;
    if (f.fails != UINT32_MAX) f.ends = UINT32_MAX;
    return f;
}

/* All streams of all epochs; 0: that is more than there is room for here, or an epoch without
   anything, or a pass. */
static int write_all(const order_plan *o) {
    uint32_t m = rows_each(o), want = o->steps > 0 ? (uint32_t)o->steps * m : 0;
    int ok = 1;
    if (o->steps == DLP_FOREVER) want = FAR_STEPS * m + o->window + o->behind;
    for (int e = 0; e < o->epochs; e++)
        for (uint64_t s = 0; s < o->streams; s++) {
            stream *x = &streams_[e][s];
            x->n_rows = x->n_pieces = 0;
            x->over = 0;
            if (packs(o))
                write_rows(o, (uint64_t)e, s, want), mix_rows(o, (uint64_t)e, s, want);
            else
                write_items(o, (uint64_t)e, s, want, o->steps > 0);
            ok &= !x->over;
        }
    return ok;
}

/* Batches of an epoch, of a rank alone that reads streams from..to - 1. */
static uint32_t batches_alone(const order_plan *o, uint64_t epoch, uint32_t from, uint32_t to) {
    uint32_t m = rows_each(o), least = UINT32_MAX, most = 0;
    if (o->steps == DLP_FOREVER) return UINT32_MAX;
    if (o->steps > 0) return (uint32_t)o->steps;
    for (uint32_t s = from; s < to; s++) {
        uint32_t n = streams_[epoch][s].n_rows;
        if (n / m < least) least = n / m;
        if ((n + m - 1) / m > most) most = (n + m - 1) / m;
    }
    return o->last == DLP_LAST_DROP ? least : most;
}

/* The streams that rows of a rank are of. */
static void streams_of(const order_plan *o, uint32_t rank, uint32_t world, uint32_t *from,
                       uint32_t *to) {
    uint32_t rows = o->batch / world;
    *from = rank * rows / rows_each(o);
    *to = ((rank + 1) * rows - 1) / rows_each(o) + 1;
}

/* Those of rank `rank` of `world`, as the rule of the epoch's end has it. */
static uint32_t batches_of(const order_plan *o, uint64_t epoch, uint32_t rank, uint32_t world) {
    uint32_t from = 0, to = o->streams;
    if (o->ends == ENDS_UNEVEN) streams_of(o, rank, world, &from, &to);
    return batches_alone(o, epoch, from, to);
}

#endif
