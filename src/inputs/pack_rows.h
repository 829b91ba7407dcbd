/* needs: pack */
#pragma once
/* tests: system/stages/pack, system/inputs/inputs_random */
#include "api/pack.h"
#include "inputs/joined.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-pack       DOCUMENTS INTO ROWS
   The source of >>impl-found, with a rule for rows: an input is a document, and its items are
   tokens. A row is a list of segments, each (cell, first token, tokens). The scheduler makes these
   lists as counts become known, and writes them into the slot. Workers of fetch copy the tokens.

   Behind a load or an expand an input has several documents. They lie in its cell one behind the
   other, and each has room for the longest document. Tokens are counted through all documents of
   the cell, and the cell has the number of the token at which each document ends. So tokens, not
   documents, are taken from a cell. A cell that has tokens left has a document that has, so the
   argument of >>impl-found holds. */

#define DLPI_PACK_WORDS 4 /* words of dlp_stage_stats.own that a pack counts */
_Static_assert(sizeof(dlpi_found_counts) + DLPI_PACK_WORDS * 8 <= DLPI_FOUND_SPREAD,
               "region layout");

typedef struct dlpi_pack_segment {
    uint32_t cell, first, tokens; /* `tokens` tokens of the cell, from its token `first` on */
} dlpi_pack_segment;

typedef struct dlpi_pack_row { /* a row of a batch, in the batch's slot */
    uint32_t n, tokens;        /* its segments, and their tokens together */
    dlpi_pack_segment at[];    /* [S] */
} dlpi_pack_row;

typedef struct dlpi_pack_stream { /* CUT: the row of a stream that is not complete yet */
    bool begun, ended;
    uint32_t tokens, segments; /* what it has so far */
    uint64_t document,
        first;         /* the document in which it begins (dlpi_pack_cell_of); its first token,
                                  by number in the cell */
    uint64_t repeated; /* its tokens that the row before it has, too (overlap) */
} dlpi_pack_stream;

typedef struct dlpi_pack_turn { /* a document of a window that is open */
    dlpi_pack_segment of;       /* where it lies */
    uint32_t window, at; /* number of the window's record; place of the document in the window */
} dlpi_pack_turn;

typedef struct dlpi_pack_turns_stream { /* documents that have a turn, in the order of windows */
    uint64_t documents;  /* known documents in the list of the stream: the next window has them */
    uint64_t head, tail; /* numbers of the first turn that is not taken, and of the next new one */
    uint64_t windows;    /* windows that were opened */
    uint64_t used;       /* CUT: tokens of the first document that are given */
    dlpi_cursor next;    /* where the next window begins */
    bool begun;          /* a window was opened */
} dlpi_pack_turns_stream;

/* Documents in the order of windows, if a window stands before the pack. */
typedef struct dlpi_pack_turns {
    uint32_t most, windows; /* turns and windows of a stream, at most; 0: there is no window */
    uint64_t inner;         /* place of a cursor = document * inner + what of it is used */
    dlpi_pack_turns_stream *streams; /* [cursors.n] */
    dlpi_pack_turn *at;              /* [cursors.n][most]; turn t is at t % most */
    dlpi_cursor *begins; /* [cursors.n][windows] where each window begins, with its check */
    dlpi_path *paths;    /* the same of joined rows; NULL: inputs are no joined rows */
} dlpi_pack_turns;

typedef struct dlpi_packed_stream { /* rows of a stream in the order of windows behind the pack */
    uint64_t known;                 /* known rows that are in no whole window */
    uint64_t n, at;        /* rows of the open window, and those of them that are given or passed */
    uint64_t check;        /* 16-bit hash of the open window */
    dlpi_cursor after;     /* place after the open window */
    dlp_permutation order; /* of the open window */
    bool begun;            /* a window was whole since the epoch, or a place of it, began */
} dlpi_packed_stream;

/* Rows in the order of windows, if a window stands behind the pack. */
typedef struct dlpi_packed {
    uint64_t window;             /* rows of a window; 0: there is none */
    dlpi_packed_stream *streams; /* [cursors.n] */
    uint8_t *rows;               /* [cursors.n][window] dlpi_pack_row, row_stride bytes each */
    dlpi_path *after;            /* [cursors.n] as in streams, of joined rows; else NULL */
    dlpi_found_rule rule, outer; /* of the pack alone; with windows around it */
} dlpi_packed;

typedef struct dlpi_fit_stream {
    uint64_t documents;         /* known documents in its list: the next window begins with them */
    uint64_t window, windows;   /* first window with such a row; windows that were laid out since
                                   the epoch, or a place of it, began */
    uint32_t row, rows, pieces; /* first known row that is not given; known rows, and pieces */
} dlpi_fit_stream;

/* Where a window lies whose documents are joined rows: its path at its first document, and at its
   last one. */
typedef struct dlpi_fit_paths {
    dlpi_path begin, end;
} dlpi_fit_paths;

typedef struct dlpi_fit_row { /* a known row that is not given yet */
    uint32_t first, n;        /* its pieces: n of its stream's, from `first` on */
    dlpi_cursor after;        /* place of the stream after this row */
} dlpi_fit_row;

typedef struct
    dlpi_fit_item { /* a piece, and the row of the same number, while both are laid out */
    dlpi_pack_segment at;
    uint32_t next;                  /* of its length; then of its row */
    uint32_t head, tail, n, tokens; /* the row's pieces */
    uint32_t row_next;              /* with as much room */
} dlpi_fit_item;

typedef struct dlpi_pack {
    dlpi_expand x; /* first: the stage's self is one, too */
    dlp_node_pack d;
    uint32_t most;           /* S: segments of a row, at most */
    uint32_t n;              /* fields of a document */
    uint64_t longest;        /* tokens of a document, at most */
    uint64_t most_documents; /* documents of an input, at most */
    bool makes;              /* an input has several documents; false: an input is a document */
    uint64_t ends;       /* bytes from the begin of a cell to its dlpi_pack_ends; 0: it has none */
    uint64_t row_stride; /* bytes from row to row in a slot */
    uint64_t unit[DLP_MAX_FIELDS];    /* bytes of a token in each field */
    dlp_field fields[DLP_MAX_FIELDS]; /* fields of a row */
    uint8_t pad[DLPI_LINE - 32];      /* workers read what is above; below is the scheduler's */
    uint64_t *words;                  /* [DLPI_PACK_WORDS] in region, for observers */
    /* Take the next row off stream i, into *row. s: slot of the row; DLPI_NO_SLOT: the row goes
       into a window. row NULL: nothing is written. */
    void (*take)(dlp_pipe *p, uint32_t i, dlpi_pack_row *row, uint32_t s);
    dlpi_packed packed;
    dlpi_pack_turns turns;
    dlpi_pack_stream *streams;                               /* CUT: [cursors.n] */
    uint64_t fit_most_items, fit_most_rows, fit_most_pieces; /* FIT, as all below */
    dlpi_fit_stream *fit_streams;                            /* [cursors.n] */
    dlpi_fit_row *fit_rows;        /* [cursors.n][fit_most_rows]; in its memory behind it */
    dlpi_pack_segment *fit_pieces; /* [cursors.n][fit_most_pieces] */
    uint64_t *fit_words;           /* lists of pieces and of rows; in its memory behind it */
    dlpi_fit_item *fit_items;      /* [fit_most_items] pieces and rows of the window */
    uint64_t fit_most_windows;     /* windows of a stream with known rows, at most */
    dlpi_fit_paths *fit_paths;     /* [cursors.n][fit_most_windows] of joined rows; else NULL */
} dlpi_pack;

static inline dlpi_pack *dlpi_pack_of(const dlp_pipe *p) { return p->source_stage->self; }

/* Return the place in the pack that cursor x has: without the rows of a window behind the pack. */
static inline uint64_t dlpi_pack_place(const dlpi_pack *k, const dlpi_cursor *x) {
    return k->packed.window > 0 ? x->place / k->packed.window : x->place;
}

/* True if the check of cursor x is this one, or that of a window behind the pack. */
static inline bool dlpi_pack_checked(const dlpi_pack *k, const dlpi_cursor *x, uint64_t check) {
    return x->check == check || (k->packed.window > 0 && x->place % k->packed.window > 0);
}

/* Return how many known rows of stream i the pack has. Rows of an open window have left it. */
static inline uint64_t dlpi_pack_known(const dlpi_pack *k, uint32_t i) {
    const dlpi_packed_stream *x = &k->packed.streams[i];
    const uint64_t rows = k->x.found.streams[i].rows;
    return k->packed.window > 0 ? rows - (x->n - x->at) + x->known : rows;
}

static inline dlpi_pack_row *dlpi_pack_row_at(const dlp_pipe *p, uint32_t s, uint32_t r) {
    return (dlpi_pack_row *)(void *)((uint8_t *)dlpi_slot_source(p, s) + sizeof(dlpi_source_state) +
                                     r * dlpi_pack_of(p)->row_stride);
}

/* The documents of a cell, n of them. Document i has the tokens end[i - 1] .. end[i] - 1 of the
   cell, at least one. */
typedef struct dlpi_pack_ends {
    uint32_t n, end[];
} dlpi_pack_ends;

typedef struct dlpi_pack_document { /* tokens first .. end - 1 of its cell */
    uint64_t first, end;
    uint32_t number; /* number of the document's item in the cell */
} dlpi_pack_document;

static inline dlpi_pack_ends *dlpi_pack_ends_of(const dlp_pipe *p, const dlpi_pack *k, uint32_t c) {
    return (dlpi_pack_ends *)(void *)(dlpi_input_bytes(p, c) + k->ends);
}

/* Return the document of cell c that has this token. */
static dlpi_pack_document dlpi_pack_find(const dlp_pipe *p, uint32_t c, uint64_t token) {
    const dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_pack_ends *e = dlpi_pack_ends_of(p, k, c);
    uint32_t low = 0, n;
    if (k->ends == 0) return (dlpi_pack_document){0, dlpi_input_at(p, c)->items, 0};
    for (n = e->n - 1; low < n;) {
        const uint32_t at = low + (n - low) / 2;
        if (e->end[at] > token)
            n = at;
        else
            low = at + 1;
    }
    return (dlpi_pack_document){low > 0 ? e->end[low - 1] : 0, e->end[low], low};
}

/* Return the document that stands behind all documents of cell c that left its stream's list. */
static dlpi_cursor dlpi_pack_left(const dlp_pipe *p, uint32_t c) {
    const dlpi_found_cell *u = &dlpi_found_of(p)->use[c];
    return (dlpi_cursor){u->ordinal, u->from > 0 ? dlpi_pack_find(p, c, u->from - 1).number + 1 : 0,
                         0, 0};
}

/* Take the next document off the list of stream i. Returns where the document lies. A cell whose
   documents are all taken leaves the list, and is kept until its tokens are given. */
static dlpi_pack_segment dlpi_pack_leave(const dlp_pipe *p, uint32_t i) {
    dlpi_found *q = dlpi_found_of(p);
    dlpi_found_stream *x = &q->streams[i];
    const uint32_t c = x->head;
    dlpi_found_cell *u = &q->use[c];
    const uint64_t first = u->from, end = dlpi_pack_find(p, c, first).end;
    u->from = end;
    if (end == u->n) dlpi_found_behead(q, x);
    return (dlpi_pack_segment){c, (uint32_t)first, (uint32_t)(end - first)};
}

/* Take cell c, which is off the list and has no tokens left, from stream x. If rows of an open
   window lie in it, the last of them does it. */
static void dlpi_pack_spend(dlpi_found *q, dlpi_found_stream *x, uint32_t c) {
    if (q->use[c].open == 0) dlpi_found_lose(q, x, c, false);
}

/* Count n tokens of cell c, which is off the list of stream i, as given. The last ones free it. */
static void dlpi_pack_free(dlpi_found *q, uint32_t i, uint32_t c, uint64_t n) {
    q->use[c].taken += n;
    if (q->use[c].taken == q->use[c].n) dlpi_pack_spend(q, &q->streams[i], c);
}

/* Return how many of the n tokens of cell c were given before the state was saved: those of the
   first `used` documents. If the cell has fewer documents, the input has changed, and n + 1 is
   returned. */
static uint64_t dlpi_pack_taken(const dlp_pipe *p, uint32_t c, uint64_t n, uint64_t used) {
    const dlpi_pack *k = dlpi_pack_of(p);
    const dlpi_pack_ends *e = dlpi_pack_ends_of(p, k, c);
    if (k->ends == 0 || used == 0) return used ? n : 0;
    return n > 0 && used <= e->n ? e->end[used - 1] : n + 1;
}

/* Return how many documents of cell c, whose counts were taken, became known. */
static uint64_t dlpi_pack_more(const dlp_pipe *p, uint32_t c) {
    const dlpi_pack *k = dlpi_pack_of(p);
    if (k->ends == 0) return 1;
    return dlpi_pack_ends_of(p, k, c)->n - dlpi_pack_left(p, c).used;
}

/* Append a piece of a document to a row: tokens of cell c, from token `first` on. The cell is kept
   until the batch in slot s has left. DLPI_NO_SLOT: until the row has left its window. */
static void dlpi_pack_put(dlp_pipe *p, dlpi_pack_row *row, uint32_t s, dlpi_pack_segment of) {
    row->at[row->n++] = of;
    row->tokens += of.tokens;
    if (s == DLPI_NO_SLOT)
        dlpi_found_of(p)->use[of.cell].open++;
    else
        dlpi_found_use(p, s, of.cell, false);
}

/* Note the index of row r of slot s, which is complete, and count the row in the statistics. */
static void dlpi_pack_count(const dlp_pipe *p, uint32_t s, uint32_t r, const dlpi_pack_row *row) {
    const dlpi_pack *k = dlpi_pack_of(p);
    dlpi_slot_index(p, s)[r] = dlpi_input_at(p, row->at[0].cell)->index;
    dlpi_bump(&k->words[DLP_PACK_ROWS], 1);
    dlpi_bump(&k->words[DLP_PACK_TOKENS], row->tokens);
    dlpi_bump(&k->words[DLP_PACK_PADDING], k->d.tokens - row->tokens);
    dlpi_bump(&k->words[DLP_PACK_SEGMENTS], row->n);
}

/* Make the next row of stream i row r of slot s. */
static void dlpi_pack_give(dlp_pipe *p, uint32_t i, uint32_t s, uint32_t r) {
    dlpi_pack_row *row = dlpi_pack_row_at(p, s, r);
    row->n = row->tokens = 0;
    dlpi_pack_of(p)->take(p, i, row, s);
    dlpi_pack_count(p, s, r, row);
}

/* Skip the next row of stream i, which is another rank's. */
static void dlpi_pack_pass(dlp_pipe *p, uint32_t i) {
    dlpi_pack_of(p)->take(p, i, NULL, DLPI_NO_SLOT);
}

/* Return how many rows of a stream the pack must know, so that enough of them can be given. With a
   window behind the pack these are whole windows, but no more than an epoch has. */
static uint64_t dlpi_pack_look(const dlp_pipe *p, const dlpi_pack *k) {
    const dlpi_found *q = &k->x.found;
    const uint64_t look = dlpi_found_look(p, q), n = k->packed.window;
    const uint64_t rows = n > 0 ? (look + n - 1) / n * n : look, epoch = q->plan.steps * q->each;
    return n > 0 && q->plan.steps > 0 && epoch < rows ? epoch : rows;
}
