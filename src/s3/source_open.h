#pragma once
/* tests: system/s3/s3_source */
#include "source/files.h"
#include "s3/manifest.h"
#include "s3/source.h"
#include "s3/source_chunks.h" /* needs: split */
#include "s3/source_parts.h"  /* needs: parts */
/* ---- open, wire, close ---- */

/* Return a text that tells what is wrong with a desc, or NULL if nothing is. */
static const char *dlpi_s3_source_wrong(const dlp_s3_source_desc *d) {
    if (d->s3 == NULL) return "s3: is NULL; use dlp_s3_open";
    if (d->bucket == NULL || d->bucket[0] == 0 || strlen(d->bucket) > 255)
        return "bucket: must have 1 to 255 bytes";
    if (dlp_s3_manifest_count(d->manifest) == 0)
        return "manifest: is NULL, or empty; list or add objects first";
    if (d->in_flight < 0 || d->in_flight > DLPI_S3_HAND_MOST) return "in_flight: must be 0..1024";
    if (d->max_bytes > UINT64_C(1) << 40) return "max_bytes: must be at most 2^40";
    if (d->max_bytes != 0 && (d->direct || !d->decode))
        return "max_bytes: must be 0 without a decode, or with direct";
    if (d->gap_bytes < DLP_NONE) return "gap_bytes: must be DLP_NONE, or 0 and more";
    if ((d->fields == NULL) != (d->n_fields == 0))
        return "fields: must be set if n_fields is above 0, and only then";
    if (d->moved != 0 && d->moved != 1) return "moved: must be 0 or 1";
    if (d->fields && (d->direct || !d->decode) && dlpi_field_item_bytes(d->fields) == 0)
        return "fields[0]: must have a dtype of 8 to 64 bits, a shape of 1 and more";
    return NULL;
}

/* Find the longest entry of the manifest, and whether the manifest has the lengths of all entries.
   */
static void dlpi_s3_lengths(dlpi_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    s->known = true;
    for (uint64_t i = 0; i < m->n; i++) {
        uint64_t bytes = dlpi_s3_bytes(m->length[i]);
        if (bytes > s->longest) s->longest = bytes;
        s->known = s->known && m->length[i] > 0;
    }
}

static const char *dlpi_s3_entry_key(const void *of, uint64_t i) { return dlpi_s3_src_key(of, i); }

/* Set what the entries are: keys, ranges and lengths, and ETags if all keys have one. */
static void dlpi_s3_identify(dlpi_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    const dlpi_names keys = {m, m->n, 0, dlpi_s3_entry_key};
    dlp_identity *id = &s->identity;
    bool etags = !s->d.any_version;
    dlpi_identity_names(id, &keys);
    id->sizes = id->content = m->n;
    for (uint64_t i = 0; i < m->n; i++) {
        const char *etag = dlpi_s3_key_etag(dlpi_s3_src_key(m, i));
        id->sizes = dlpi_absorb(dlpi_absorb(id->sizes, m->offset[i]), m->length[i]);
        id->content = dlpi_absorb_bytes(id->content, etag, strlen(etag));
        etags = etags && etag[0] != 0;
    }
    id->sizes = dlpi_known(id->sizes);
    id->content = etags ? dlpi_known(id->content) : 0;
    id->moved = s->d.moved;
}

/* Set the room that an item has: capacity, unit, direct, ragged. Returns NULL or an error text. */
static const char *dlpi_s3_room_wrong(dlpi_s3_source *s) {
    const dlp_field *field = s->d.fields;
    if (field == NULL) return NULL;
    s->d.direct = s->d.direct || s->d.decode == NULL;
    if (s->d.direct) {
        s->ragged = field->ragged != 0;
        s->capacity = dlpi_field_item_bytes(field);
        s->unit = s->ragged ? s->capacity / (uint64_t)field->shape[0] : s->capacity;
        return NULL;
    }
    s->capacity = s->d.max_bytes ? s->d.max_bytes : s->known ? s->longest : 0;
    return s->capacity ? NULL : "max_bytes: is 0; set it, as some lengths are unknown";
}

static const char dlpi_s3_no_memory[] = "no memory for the rows of the manifest";

/* Count all entries' rows into s->first_row, if row_bytes is set. Returns NULL or an error text. */
static const char *dlpi_s3_rows_wrong(dlpi_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    uint64_t rows = 0;
    if (s->d.row_bytes == 0) return NULL;
    if (!s->known) return "row_bytes: needs the length of every entry; list the bucket for them";
    s->first_row = calloc((size_t)m->n + 1, sizeof *s->first_row);
    if (s->first_row == NULL) return dlpi_s3_no_memory;
    for (uint64_t i = 0; i < m->n; i++) {
        uint64_t bytes = dlpi_s3_bytes(m->length[i]);
        if (bytes % s->d.row_bytes != 0)
            return "row_bytes: the bytes of each entry must be a multiple of it";
        s->first_row[i] = rows;
        rows += bytes / s->d.row_bytes;
    }
    s->first_row[m->n] = rows;
    return NULL;
}

/* Tell in buf that the server has not answered for a while: dlp_workers_desc.tell. Returns the
   length of the text, 0 if there is nothing to tell. */
static int dlpi_s3_tell(void *user, char *buf, size_t size) {
    const dlpi_s3_source *s = (const dlpi_s3_source *)user;
    uint64_t away_ns = dlpi_s3_away_for(&s->d.s3->common->shared, dlpi_s3_now_ns());
    const char *field;
    int32_t ms = dlpi_s3_bound_ms(&s->d.s3->desc, &field);
    if (away_ns < DLPI_S3_AWAY_NS) return 0;
    return snprintf(buf, size,
                    "no answer from the S3 server of bucket '%s' for %.1f s; requests "
                    "wait, and are sent again, for up to %s (%d ms)",
                    s->bucket, (double)away_ns / 1e9, field, (int)ms);
}

static void dlpi_s3_wire_workers(dlpi_s3_source *s, dlp_workers_desc *workers) {
    workers->worker_init = dlpi_s3_worker_init;
    workers->worker_exit = dlpi_s3_worker_exit;
    workers->worker_user = s;
    workers->tell = dlpi_s3_tell;
}

/* Free the source. Returns DLP_OK, or DLP_ERR_BUSY while a worker uses it. */
static int dlpi_s3_src_close(dlp_source *source) {
    dlpi_s3_source *s = (dlpi_s3_source *)(void *)source;
    if (DLPI_LOAD_SEQ(&s->users) != 0) return DLP_ERR_BUSY; /* SU1 <- SU1 */
    free(s->first_row);
    free(s);
    return DLP_OK;
}

/* Fill the dataset and the source, from the desc that was checked. */
static void dlpi_s3_src_source(dlpi_s3_source *s) {
    s->dataset = (dlp_dataset){.n_items = dlp_s3_manifest_count(s->d.manifest),
                               .fields = s->d.fields,
                               .n_fields = s->d.n_fields,
                               .writes_all_bytes =
                                   s->d.writes_all_bytes || (s->d.direct && s->d.n_fields == 1),
                               .fetch = dlpi_s3_src_fetch,
                               .user = s,
                               .identity = &s->identity};
    s->source = (dlp_source){.dataset = &s->dataset,
                             .fetcher = DLP_FETCH_ASYNC,
                             .async = {dlpi_s3_submit_item, dlpi_s3_reap_items},
                             .in_flight = s->d.in_flight,
                             .parts = dlpi_s3_parts,   /* needs: parts */
                             .chunks = dlpi_s3_chunks, /* needs: split */
                             .close = dlpi_s3_src_close};
    s->dataset.worker_bytes = dlp_s3_source_worker_bytes(&s->source);
    dlpi_s3_wire_workers(s, &s->source.workers);
}

DLPDEF int dlp_s3_source_open(dlp_source **out, const dlp_s3_source_desc *desc, dlp_s3_error *err) {
    const char *wrong;
    dlpi_s3_source *s;
    if (err) memset(err, 0, sizeof *err);
    if (out == NULL || desc == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", out ? "desc" : "out");
    wrong = dlpi_s3_source_wrong(desc);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
    wrong = dlpi_s3_bucket_beyond(&desc->s3->endpoint, desc->bucket);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: %s", wrong);
    s = calloc(1, sizeof *s);
    if (s == NULL) return dlpi_s3_set_error(err, DLP_ERR_MEMORY, 0, "no memory for the source");
    s->d = *desc;
    dlpi_copy_text(s->bucket, sizeof s->bucket, desc->bucket);
    s->d.in_flight = desc->in_flight ? desc->in_flight : 16;
    s->d.gap_bytes = desc->gap_bytes ? desc->gap_bytes : 64 << 10;
    s->d.joint_bytes = desc->joint_bytes ? desc->joint_bytes : 8 << 20;
    dlpi_s3_lengths(s);
    wrong = dlpi_s3_room_wrong(s);
    if (wrong == NULL) wrong = dlpi_s3_rows_wrong(s);
    if (wrong == NULL) {
        dlpi_s3_identify(s);
        dlpi_s3_src_source(s);
        *out = &s->source;
        return DLP_OK;
    }
    free(s->first_row);
    free(s);
    return dlpi_s3_set_error(err, wrong == dlpi_s3_no_memory ? DLP_ERR_MEMORY : DLP_ERR_ARG, 0,
                             "%s", wrong);
}

DLPDEF uint64_t dlp_s3_source_worker_bytes(const dlp_source *source) {
    const dlpi_s3_source *s = (const dlpi_s3_source *)(const void *)source;
    uint64_t each = dlpi_sum(sizeof(dlpi_s3_get), dlpi_s3_stride(s));
    uint64_t pieces = dlpi_times(dlpi_s3_pieces(s), sizeof(dlp_s3_piece));
    return dlpi_sum(sizeof(dlpi_s3_worker) + pieces, dlpi_times((uint64_t)s->d.in_flight, each));
}
