/* needs: split */
#pragma once
/* tests: system/s3/s3_source, system/shm/shm_s3 */
#include "api/s3_source_chunks.h"
#include "stages/split.h"
#include "source/mapped.h"
#include "s3/source.h"
#include "s3/manifest.h"
/* ---- chunks ---- */

/* The rows of a chunk that are still to be asked for, in the order of the dataset. */
typedef struct dlpi_s3_rows {
    const dlpi_s3_source *s;
    dlp_chunk *c;
    uint8_t *to;
    uint64_t at, end;    /* dataset rows that are still to be asked for: [at, end) */
    uint32_t *place;     /* [chunk_rows] 1 + place of each row, 0: not wanted; NULL: not shuffled */
    dlp_s3_piece *piece; /* [2 * count] pieces of a shuffled chunk */
    uint64_t n_pieces;   /* pieces in use */
} dlpi_s3_rows;

/* Return the end of the rows that a request from row x->at on may read: they are rows of one entry
   of the manifest, and of at most joint_bytes. */
static uint64_t dlpi_s3_rows_most(const dlpi_s3_rows *x, uint64_t entry) {
    uint64_t most = x->s->d.joint_bytes / x->s->d.row_bytes, end = x->s->first_row[entry + 1];
    if (most == 0) most = 1;
    if (end > x->end) end = x->end;
    return end - x->at > most ? x->at + most : end;
}

/* Add a wanted row to a request, as a piece of the chunk's memory. gap: rows before it that nobody
   wants; they become a piece without memory. */
static void dlpi_s3_rows_piece(dlpi_s3_rows *x, dlp_s3_request *r, uint64_t row, uint64_t gap) {
    uint64_t bytes = x->s->d.row_bytes;
    dlp_s3_piece *p = &x->piece[x->n_pieces];
    uint32_t n = 0;
    if (gap > 0) p[n++] = (dlp_s3_piece){NULL, gap * bytes};
    p[n++] = (dlp_s3_piece){x->to + (x->place[row - x->c->chunk_first] - 1u) * bytes, bytes};
    x->n_pieces += n;
    r->n_pieces += n;
    r->length += (gap + 1) * bytes;
}

static bool dlpi_s3_rows_wants(const dlpi_s3_rows *x, uint64_t row) {
    return x->place[row - x->c->chunk_first] != 0;
}

/* Fill a request with the wanted rows from x->at up to end, or up to a gap that is too long. */
static void dlpi_s3_rows_gather(dlpi_s3_rows *x, dlp_s3_request *r, uint64_t end) {
    const dlpi_s3_source *s = x->s;
    uint64_t gap = 0, bytes = s->d.row_bytes;
    uint64_t most = s->d.gap_bytes < 0 ? 0 : (uint64_t)s->d.gap_bytes / bytes;
    r->pieces = &x->piece[x->n_pieces];
    for (; x->at < end && gap <= most; x->at++) {
        if (!dlpi_s3_rows_wants(x, x->at)) {
            gap++;
            continue;
        }
        dlpi_s3_rows_piece(x, r, x->at, gap);
        gap = 0;
    }
}

/* Fill in the next request for rows of the chunk. Returns false if all requests were made. */
static bool dlpi_s3_rows_next(dlpi_s3_rows *x, dlp_s3_request *r) {
    const dlpi_s3_source *s = x->s;
    uint64_t entry, end, bytes = s->d.row_bytes, first;
    dlp_s3_entry at = {"", 0, 0, 0, ""};
    while (x->place && x->at < x->end && !dlpi_s3_rows_wants(x, x->at)) x->at++;
    if (x->at == x->end) return false;
    entry = dlpi_file_of(s->first_row, sizeof *s->first_row, dlp_s3_manifest_count(s->d.manifest),
                         x->at);
    end = dlpi_s3_rows_most(x, entry);
    (void)dlp_s3_manifest_get(s->d.manifest, entry, &at);
    first = (x->at - s->first_row[entry]) * bytes;
    at.offset = at.offset == DLP_S3_WHOLE ? first : at.offset + first;
    at.length = 0;
    dlpi_s3_src_ask(s, r, &at, NULL, 0);
    if (x->place) {
        dlpi_s3_rows_gather(x, r, end);
        return true;
    }
    r->length = r->capacity = (end - x->at) * bytes;
    r->body = x->to + (x->at - x->c->first) * bytes;
    x->at = end;
    return true;
}

/* Begin to read a chunk's rows into the memory at to. Returns false if there is no memory for that;
   dlpi_s3_rows_end must follow in any case. */
static bool dlpi_s3_rows_begin(dlpi_s3_rows *x, const dlpi_s3_source *s, dlp_chunk *c, void *to) {
    *x = (dlpi_s3_rows){.s = s, .c = c, .to = to, .at = c->first, .end = c->first + c->count};
    if (!c->shuffled) return true;
    x->at = c->chunk_first;
    x->end = c->chunk_first + c->chunk_rows;
    x->place = calloc((size_t)c->chunk_rows, sizeof *x->place);
    x->piece = calloc((size_t)c->count, 2 * sizeof *x->piece);
    for (uint64_t k = 0; x->place && k < c->count; k++)
        x->place[dlp_chunk_row(c, k) - c->chunk_first] = (uint32_t)k + 1;
    return x->place != NULL && x->piece != NULL;
}

static void dlpi_s3_rows_end(dlpi_s3_rows *x) {
    free(x->place);
    free(x->piece);
}

static int dlpi_s3_chunk_complain(const dlp_chunk *c, const dlp_s3_request *r) {
    char text[256];
    dlpi_s3_words(r, text, sizeof text);
    return dlp_fail(c->call, r->error.errnum, "%s", text);
}

/* Requests of a chunk under way, with the I/O of the first record. */
typedef struct dlpi_s3_joint {
    dlpi_s3_worker *w;
    dlpi_s3_rows *rows;
    dlp_s3_io **io;
    dlpi_s3_get *idle, *next; /* records without a request; a record whose request found no room */
    int out;                  /* requests that io has */
} dlpi_s3_joint;

/* Send requests until no row, record or room is left. Returns 0, or DLP_ERR_CALLBACK on failure. */
static int dlpi_s3_joint_send(dlpi_s3_joint *x) {
    for (int rc;;) {
        dlpi_s3_get *q = x->next ? x->next : x->idle;
        if (q == NULL) return 0;
        if (x->next == NULL) {
            if (!dlpi_s3_rows_next(x->rows, &q->request)) return 0;
            x->idle = q->next;
            q->request.user = q;
        }
        x->next = q;
        rc = dlp_s3_submit(*x->io, &q->request);
        if (rc == DLP_FULL && x->out > 0) return 0;
        if (rc != DLP_OK) {
            dlpi_s3_broken(&q->request, rc);
            return dlpi_s3_chunk_complain(x->rows->c, &q->request);
        }
        x->next = NULL;
        x->out++;
    }
}

/* Wait DLPI_S3_LOOK_MS for ended requests, and make their records idle. Returns 0, or
   DLP_ERR_CALLBACK if a request failed, the I/O is broken, or the pipe was stopped. */
static int dlpi_s3_joint_reap(dlpi_s3_joint *x, int *looks) {
    dlp_s3_request *done[16];
    int n = dlp_s3_reap(*x->io, done, 16, DLPI_S3_LOOK_MS), rc = 0;
    if (n < 0) return dlp_fail(x->rows->c->call, 0, "the client's I/O is broken, code %d", n);
    if (n == 0 && dlpi_s3_given_up(dlpi_s3_pipe_of(x->rows->c->call), looks))
        return dlp_fail(x->rows->c->call, 0, "given up, the pipe was stopped");
    for (int i = 0; i < n; i++) {
        dlpi_s3_get *q = done[i]->user;
        x->out--;
        q->next = x->idle;
        x->idle = q;
        if (rc == 0 && done[i]->code != DLP_OK) rc = dlpi_s3_chunk_complain(x->rows->c, done[i]);
    }
    return rc;
}

/* Read all rows, by one I/O and as many records as are free. Returns 0 or DLP_ERR_CALLBACK. */
static int dlpi_s3_rows_run(dlpi_s3_worker *w, dlpi_s3_rows *rows) {
    dlpi_s3_get *lead = dlpi_s3_lend(w, true), *q;
    dlpi_s3_get *mine[DLPI_S3_HAND_MOST];
    dlpi_s3_joint x = {w, rows, &lead->io, NULL, NULL, 0};
    int n = 0, looks = 0, rc = dlpi_s3_io_ready(x.io, w->source, &lead->request.error);
    if (rc != DLP_OK) rc = dlp_fail(rows->c->call, 0, "%s", lead->request.error.message);
    for (q = lead; q != NULL; q = n < w->source->d.in_flight ? dlpi_s3_lend(w, false) : NULL) {
        q->next = x.idle;
        x.idle = mine[n++] = q;
    }
    while (rc == 0) {
        rc = dlpi_s3_joint_send(&x);
        if (rc != 0 || x.out == 0) break;
        rc = dlpi_s3_joint_reap(&x, &looks);
    }
    if (rc != 0 && lead->io) dlpi_s3_src_drop(&lead->io); /* with what is still out */
    while (n > 0) dlpi_s3_src_give(w, mine[--n]);
    return rc;
}

DLPDEF int dlp_s3_chunk_read(dlp_source *from, dlp_chunk *chunk, uint32_t field) {
    dlpi_s3_source *source = (dlpi_s3_source *)(void *)from;
    dlpi_s3_worker *w = chunk->worker_state;
    const dlpi_field *f;
    dlpi_s3_rows rows;
    int rc;
    if (!dlpi_s3_is_worker(chunk->call, w) || w->source->d.s3 != source->d.s3)
        return dlp_fail(chunk->call, 0,
                        "give the objects as chunks.source; its workers have the connections");
    if (source->first_row == NULL)
        return dlp_fail(chunk->call, 0, "row_bytes: is 0; set it in the desc of the source");
    if (field >= chunk->n_fields)
        return dlp_fail(chunk->call, 0, "field: is %u, must be below %u", field, chunk->n_fields);
    f = &chunk->call->w->p->items.at[field];
    if (f->row_bytes / (uint64_t)f->f.shape[0] != source->d.row_bytes)
        return dlp_fail(chunk->call, 0, "row_bytes is %llu, rows of field %s have another size",
                        (unsigned long long)source->d.row_bytes, f->name);
    if (chunk->chunk_first + chunk->chunk_rows >
        source->first_row[dlp_s3_manifest_count(source->d.manifest)])
        return dlp_fail(chunk->call, 0, "the objects end before row %llu; lower n_items",
                        (unsigned long long)(chunk->chunk_first + chunk->chunk_rows - 1));
    rc = dlpi_s3_rows_begin(&rows, source, chunk, chunk->data[field])
             ? dlpi_s3_rows_run(w, &rows)
             : dlp_fail(chunk->call, ENOMEM, "no memory for the order of %llu rows",
                        (unsigned long long)chunk->chunk_rows);
    dlpi_s3_rows_end(&rows);
    return rc;
}

/* Read a chunk's first field: dlp_chunk_fn. */
static int dlpi_s3_chunk_load(void *source, dlp_chunk *chunk) {
    return dlp_s3_chunk_read(source, chunk, 0);
}

/* Fill in a desc of chunks as far as the source knows it: dlp_source.chunks. */
static void dlpi_s3_chunks(const dlp_source *source, dlp_chunks_desc *chunks) {
    dlpi_s3_source *s = (dlpi_s3_source *)(uintptr_t)source;
    if (s->first_row) chunks->n_items = s->first_row[dlp_s3_manifest_count(s->d.manifest)];
    if (chunks->load == NULL) {
        chunks->load = dlpi_s3_chunk_load;
        chunks->user = s;
    }
}
