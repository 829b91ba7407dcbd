/* needs: files lines parts */
#pragma once
/* tests: system/source/tar */
#include "source/indexed.h"
#include "source/tar.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-tar-source  SAMPLES AS ITEMS */

typedef struct dlpi_tar_source {
    dlpi_indexed x; /* first */
    dlp_tar_desc d;
} dlpi_tar_source;

/* ---- fields ---- */

/* Where an error is told. name: of the shard; NULL: the error says by itself which shard it is. */
typedef struct dlpi_tar_told {
    dlp_call *call;
    const char *name;
} dlpi_tar_told;

DLPI_COLD __attribute__((format(printf, 3, 4))) static int dlpi_tar_fail(const dlpi_tar_told *told,
                                                                         int errnum,
                                                                         const char *format, ...) {
    char words[200];
    DLPI_PRINT(words, sizeof words, format);
    return dlp_fail(told->call, errnum, "%s%s%s",
                    told->name != NULL ? dlpi_path_end(told->name) : "",
                    told->name != NULL ? ": " : "", words);
}

/* Return the member of a sample that belongs to field i, by its extensions or its name, or NULL. */
static const dlp_tar_member *dlpi_tar_member_of(const dlp_tar_desc *d, uint32_t i,
                                                const dlp_tar_sample *s) {
    const char *at = d->extensions != NULL ? d->extensions[i] : d->fields[i].name;
    const dlp_tar_member *m = NULL;
    while (m == NULL && *at != 0) {
        size_t n = strcspn(at, " ");
        m = n > 0 ? dlpi_tar_find(s, at, n) : NULL;
        at += n + (at[n] == ' ');
    }
    return m;
}

/* Copy the bytes of a member into field i. Returns 0, or DLP_ERR_LENGTH. */
static int dlpi_tar_field(const dlp_field *f, dlp_item *item, uint32_t i, const dlpi_tar_told *told,
                          const dlp_tar_sample *s, const dlp_tar_member *m) {
    uint64_t row = ((f->dtype & 0xffff) + 7) / 8, most;
    for (int k = f->ragged ? 1 : 0; k < f->ndim; k++) row *= (uint64_t)f->shape[k];
    most = f->ragged ? row * (uint64_t)f->shape[0] : row;
    if (m->bytes > most || (!f->ragged && m->bytes < most) || m->bytes % row != 0) {
        const char *takes = row > 1 ? "whole rows, up to " : "up to ";
        dlpi_tar_fail(told, 0,
                      "%.60s.%.30s has %" PRIu64 " bytes; field %s takes %s%" PRIu64
                      "; change its shape",
                      s->key, m->extension, m->bytes, f->name, f->ragged ? takes : "", most);
        return DLP_ERR_LENGTH;
    }
    if (m->bytes > 0) memcpy(item->data[i], m->data, (size_t)m->bytes);
    if (f->ragged) item->length[i] = m->bytes / row;
    return 0;
}

/* Write the fields of an item from its sample. Returns 0 or a failure's code. */
static int dlpi_tar_write(const dlp_tar_desc *d, void *state, dlp_item *item,
                          const dlpi_tar_told *told, const dlp_tar_sample *s) {
    int rc = 0;
    if (d->decode != NULL) return d->decode(d->user, state, item, s);
    for (uint32_t i = 0; i < d->n_fields && rc == 0; i++) {
        const dlp_tar_member *m = dlpi_tar_member_of(d, i, s);
        if (m != NULL)
            rc = dlpi_tar_field(&d->fields[i], item, i, told, s, m);
        else if (!d->optional || !d->fields[i].ragged)
            rc = dlpi_tar_fail(
                told, 0, "%.60s has no member .%.40s; name the field after an extension", s->key,
                d->extensions != NULL ? d->extensions[i] : d->fields[i].name);
    }
    return rc;
}

/* Say in the call what is noted in t as wrong. begins: byte of the shard that t begins with.
   Returns the failure's code. */
static int dlpi_tar_say(const dlpi_tar *t, const dlpi_tar_told *told, uint64_t begins) {
    return dlpi_tar_fail(told, t->errnum, "byte %" PRIu64 ": %s", begins + t->wrong_at, t->why);
}

/* Make an item of n bytes of a shard, which are in memory. begins: the place of the first byte.
   Returns 0 or a failure's code. */
static int dlpi_tar_item(const dlp_tar_desc *d, void *state, dlp_item *item,
                         const dlpi_tar_told *told, const uint8_t *bytes, uint64_t n,
                         uint64_t begins) {
    dlpi_tar t = {.bytes = bytes, .size = n, .extent = true};
    dlpi_tar_sample s;
    if (dlpi_tar_sample_read(&t, &s) != 0) return dlpi_tar_say(&t, told, begins);
    return dlpi_tar_write(d, state, item, told, &s.s);
}

/* ---- at random ---- */

static bool dlpi_tar_place(void *to, uint64_t at) { return dlpi_places_add(to, at); }

/* Find the samples of a shard, and fill its index. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tar_find_all(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    dlpi_tar t = {.size = f->m.size, .file = &f->m, .room = malloc(DLPI_TAR_PAX)};
    dlpi_places p = {NULL, 0, 0};
    (void)x;
    if (t.room == NULL) return dlpi_mapped_system(err, f->m.path, "malloc", ENOMEM);
    if (dlpi_tar_samples(&t, dlpi_tar_place, &p) != 0) {
        free(p.at);
        free(t.room);
        dlpi_error_set(err, t.code, "paths", "%s: byte %" PRIu64 ": %s", dlpi_path_end(f->m.path),
                       t.wrong_at, t.why);
        if (err != NULL) err->errnum = t.errnum;
        return t.code;
    }
    free(t.room);
    f->index = dlpi_index_of(p.at, p.n - 1);
    return DLP_OK;
}

static int dlpi_tar_decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    const dlpi_tar_source *s = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(&s->x, item->index);
    const dlpi_tar_told told = {item->call, f->m.path};
    uint64_t from = 0, to;
    (void)dlpi_index_item(&f->index, f->m.size, item->index - f->first, &from, &to);
    return dlpi_tar_item(&s->d, state, item, &told, bytes, n, from);
}

DLPI_COLD static const char *dlpi_tar_desc_wrong(const dlp_tar_desc *d, const char **field) {
    const char *wrong = dlpi_indexed_wrong(d->path, d->paths, d->n_paths, d->threads, field);
    if (wrong != NULL) return wrong;
    if (d->max_bytes > UINT64_C(1) << 40) return *field = "max_bytes", "0 to 2^40";
    if (d->optional < 0 || d->optional > 1) return *field = "optional", "0 or 1";
    if (d->fields == NULL) return *field = "fields", "given: the fields of a sample";
    if (d->n_fields < 1 || d->n_fields > DLP_MAX_FIELDS) return *field = "n_fields", "1 to 16";
    for (uint32_t i = 0; d->extensions != NULL && i < d->n_fields; i++)
        if (d->extensions[i] == NULL) return *field = "extensions", "without a NULL";
    return NULL;
}

DLPI_COLD static int dlpi_tar_source_make(dlpi_indexed *x, dlp_error *err) {
    const dlpi_tar_source *s = (const dlpi_tar_source *)(const void *)x;
    const dlp_tar_desc *d = &s->d;
    dlp_files_desc files = {.fields = d->fields,
                            .n_fields = d->n_fields,
                            .use_threads = d->use_threads,
                            .decode = dlpi_tar_decode,
                            .max_bytes = d->max_bytes > 0 ? d->max_bytes : s->x.most};
    files.in_flight = d->in_flight;
    return dlpi_indexed_source(x, &files, err);
}

DLPI_COLD DLPDEF int dlp_tar_open(dlp_source **out, const dlp_tar_desc *desc, dlp_error *err) {
    const char *field = "", *wrong;
    dlpi_tar_source *s;
    if (out == NULL || desc == NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, "", "out or desc is NULL");
    if ((wrong = dlpi_tar_desc_wrong(desc, &field)) != NULL)
        return dlpi_error_set(err, DLP_ERR_ARG, field, "%s must be %s", field, wrong);
    s = dlpi_indexed_new(sizeof *s, desc->path, desc->paths, desc->n_paths);
    if (s == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "malloc failed");
    s->d = *desc;
    s->x.kind = DLPI_INDEX_TAR;
    s->x.directory = desc->index;
    s->x.worker_init = desc->worker_init;
    s->x.worker_exit = desc->worker_exit;
    s->x.user = desc->user;
    s->x.threads = dlpi_jobs_threads(desc->threads);
    s->x.find = dlpi_tar_find_all;
    s->x.make = dlpi_tar_source_make;
    return dlpi_indexed_open(out, &s->x, true, err);
}

/* ---- shards that are whole in memory ---- */

/* Return the name of a shard, or NULL if it is not known. */
static const char *dlpi_tar_name(const dlp_tar_desc *d, uint64_t index) {
    return d->paths != NULL && index < d->n_paths ? d->paths[index] : NULL;
}

/* Places behind the bytes of a part: one of each sample, that of the end, and their number. */
typedef struct dlpi_tar_table {
    uint64_t *at, n, room;
} dlpi_tar_table;

static bool dlpi_tar_table_add(void *to, uint64_t at) {
    dlpi_tar_table *p = to;
    if (p->n == p->room) return false;
    p->at[p->n++] = at;
    return true;
}

DLPDEF int dlp_tar_load(void *parts, dlp_part *part) {
    const dlp_tar_parts *p = parts;
    const dlpi_tar_told told = {part->call, dlpi_tar_name(p->desc, part->index)};
    dlpi_tar t = {.bytes = part->data};
    dlpi_tar_table to;
    uint64_t begins;
    int rc = p->load(p->user, part);
    if (rc != 0) return rc;
    if (part->bytes > part->capacity) return DLP_ERR_LENGTH;
    t.size = part->bytes;
    begins = (part->bytes + 7) / 8 * 8;
    to.at = (uint64_t *)(void *)((uint8_t *)part->data + begins);
    to.n = 0;
    to.room = begins + 8 < part->capacity ? (part->capacity - begins) / 8 - 1 : 0;
    if (dlpi_tar_samples(&t, dlpi_tar_table_add, &to) != 0) {
        if (t.code != DLP_ERR_MEMORY) return dlpi_tar_say(&t, &told, 0);
        dlpi_tar_fail(&told, 0,
                      "max_part_bytes is %" PRIu64 ", too little for %" PRIu64 " samples and "
                      "more; raise it",
                      part->capacity, to.n);
        return DLP_ERR_LENGTH;
    }
    to.at[to.n] = to.n - 1;
    part->bytes = begins + (to.n + 1) * 8;
    if (part->items != 0 && part->items != to.n - 1)
        return dlpi_tar_fail(&told, 0, "the shard has %" PRIu64 " samples, the part says %" PRIu64,
                             to.n - 1, part->items);
    part->items = to.n - 1;
    return 0;
}

DLPDEF int dlp_tar_fetch(void *parts, dlp_item *item) {
    const dlp_tar_parts *p = parts;
    const dlp_part *part = item->part;
    const uint64_t words = part != NULL && part->bytes % 8 == 0 ? part->bytes / 8 : 0;
    const uint64_t *word, *at;
    dlpi_tar_told told;
    uint64_t n;
    if (words < 2) return dlp_fail(item->call, 0, "the part is none that dlp_tar_load loaded");
    word = part->data;
    n = word[words - 1];
    at = word + words - 2 - (n < words - 1 ? n : 0);
    if (n >= words - 1 || part->item >= n || at[part->item] > at[part->item + 1] ||
        at[part->item + 1] > part->bytes)
        return dlp_fail(item->call, 0, "the part is none that dlp_tar_load loaded");
    told = (dlpi_tar_told){item->call, dlpi_tar_name(p->desc, part->index)};
    return dlpi_tar_item(p->desc, item->worker_state, item, &told,
                         (const uint8_t *)part->data + at[part->item],
                         at[part->item + 1] - at[part->item], at[part->item]);
}

/* Make an item as soon as the next one begins. */
typedef struct dlpi_tar_expander {
    const dlp_tar_desc *d;
    dlp_expand *x;
    dlpi_tar_told told;
    uint64_t from;
    bool any;
    int rc;
} dlpi_tar_expander;

/* Make an item of the sample that ends at `at`, and note where the next one begins. Returns false
   if it failed, with the code in e->rc. */
static bool dlpi_tar_expand_add(void *to, uint64_t at) {
    dlpi_tar_expander *e = to;
    const dlp_item *input = e->x->item;
    if (e->any) {
        dlp_item *item = dlp_expand_add(e->x);
        e->rc = item == NULL ? DLP_ERR_LENGTH
                             : dlpi_tar_item(e->d, input->worker_state, item, &e->told,
                                             (const uint8_t *)input->data[0] + e->from,
                                             at - e->from, e->from);
    }
    e->from = at;
    e->any = true;
    return e->rc == 0;
}

DLPDEF int dlp_tar_expand(void *desc, dlp_expand *x) {
    const dlp_tar_desc *d = desc;
    dlpi_tar t = {.bytes = x->item->data[0], .size = x->item->length[0]};
    dlpi_tar_expander e = {d, x, {x->call, dlpi_tar_name(d, x->item->index)}, 0, false, 0};
    if (dlpi_tar_samples(&t, dlpi_tar_expand_add, &e) == 0) return 0;
    return e.rc != 0 ? e.rc : dlpi_tar_say(&t, &e.told, 0);
}
