/* needs: tar */
#pragma once
/* tests: system/source/tar */
#include "source/indexed.h"
#include "source/tar.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-tar-source  SAMPLES AS ITEMS */

/* ---- fields ---- */

/* A call in which an item is made, or a failure is told. */
typedef struct dlpi_tar_call {
    dlp_call *call;
    const char *name; /* of the shard; NULL: the error says by itself which shard it is */
    const dlp_tar_desc *d;
    void *state; /* of the worker */
} dlpi_tar_call;

/* Say in the item's call what failed, behind the shard's name if it is known. Returns the code of
   the failure. */
DLPI_COLD DLPI_PRINTF(3, 4) static int dlpi_tar_fail(const dlpi_tar_call *c, int errnum,
                                                     const char *format, ...) {
    char words[200];
    DLPI_PRINT(words, sizeof words, format);
    return dlp_fail(c->call, errnum, "%s%s%s", c->name != NULL ? dlpi_path_end(c->name) : "",
                    c->name != NULL ? ": " : "", words);
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
static int dlpi_tar_field(const dlpi_tar_call *c, dlp_item *item, uint32_t i,
                          const dlp_tar_sample *s, const dlp_tar_member *m) {
    const dlp_field *f = &c->d->fields[i];
    uint64_t row = ((f->dtype & 0xffff) + 7) / 8, most;
    for (int k = f->ragged ? 1 : 0; k < f->ndim; k++) row *= (uint64_t)f->shape[k];
    most = f->ragged ? row * (uint64_t)f->shape[0] : row;
    if (m->bytes > most || (!f->ragged && m->bytes < most) || m->bytes % row != 0) {
        const char *takes = row > 1 ? "whole rows, up to " : "up to ";
        dlpi_tar_fail(c, 0,
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
static int dlpi_tar_write(const dlpi_tar_call *c, dlp_item *item, const dlp_tar_sample *s) {
    const dlp_tar_desc *d = c->d;
    uint32_t found = 0;
    int rc = 0;
    if (d->decode != NULL) return d->decode(d->user, c->state, item, s);
    for (uint32_t i = 0; i < d->n_fields && rc == 0; i++) {
        const dlp_tar_member *m = dlpi_tar_member_of(d, i, s);
        found += m != NULL;
        if (m != NULL)
            rc = dlpi_tar_field(c, item, i, s, m);
        else if (!d->optional || !d->fields[i].ragged)
            rc =
                dlpi_tar_fail(c, 0, "%.60s has no member .%.40s; name the field after an extension",
                              s->key, d->extensions != NULL ? d->extensions[i] : d->fields[i].name);
    }
    if (rc != 0 || found > 0) return rc;
    return dlpi_tar_fail(c, 0, "%.60s.%.30s belongs to no field; leave it out of the shard", s->key,
                         s->members[0].extension);
}

/* Say in the call what is noted in t as wrong. begins: byte of the shard that t begins with.
   Returns the failure's code. */
static int dlpi_tar_say(const dlpi_tar *t, const dlpi_tar_call *c, uint64_t begins) {
    return dlpi_tar_fail(c, t->errnum, "byte %" PRIu64 ": %s", begins + t->wrong_at, t->why);
}

/* Make an item of n bytes of a shard, which are in memory. begins: the place of the first byte.
   Returns 0 or a failure's code. */
static int dlpi_tar_item(const dlpi_tar_call *c, dlp_item *item, const uint8_t *bytes, uint64_t n,
                         uint64_t begins) {
    dlpi_tar t; /* its texts are not cleared, which would take longer than a header */
    dlpi_tar_sample s;
    memset(&t, 0, offsetof(dlpi_tar, why));
    t.bytes = bytes;
    t.size = n;
    t.d = c->d;
    t.extent = true;
    if (dlpi_tar_sample_read(&t, &s) != 0) return dlpi_tar_say(&t, c, begins);
    return dlpi_tar_write(c, item, &s.s);
}

/* ---- at random ---- */

static bool dlpi_tar_place(void *to, uint64_t at) { return dlpi_places_add(to, at); }

/* Find the samples of a shard, and fill its index. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_tar_find_all(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    dlpi_tar t = {.size = f->m.size, .file = &f->m, .d = &x->d, .room = malloc(DLPI_TAR_PAX)};
    dlpi_places p = {NULL, 0, 0};
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
    return dlpi_indexed_note(f, p.n == 1 ? "has no samples" : t.note, err);
}

/* Take a sample's bytes apart, and fill the item from its members. Returns 0 or a failure's code.
 */
static int dlpi_tar_decode(const dlpi_indexed *x, const dlpi_indexed_file *f, void *state,
                           dlp_item *item, const void *bytes, uint64_t n, uint64_t from,
                           uint64_t to DLPI_UNREAD) {
    const dlpi_tar_call c = {item->call, f->m.path, &x->d, state};
    return dlpi_tar_item(&c, item, bytes, n, from);
}

DLPI_COLD DLPDEF int dlp_tar_open(dlp_source **out, const dlp_tar_desc *desc, dlp_error *err) {
    static const dlpi_splitter how = {.kind = DLPI_INDEX_TAR,
                                      .together = true,
                                      .find = dlpi_tar_find_all,
                                      .item = dlpi_tar_decode};
    return dlpi_indexed_open(out, desc, &how, err);
}

/* ---- shards that are whole in memory ---- */

/* Return the name of a shard, or NULL if it is not known. */
static const char *dlpi_tar_name(const dlp_tar_desc *d, uint64_t index) {
    return d->paths != NULL && index < d->n_paths ? d->paths[index] : NULL;
}

/* Return the files of a load of shards, or NULL if another function loads their bytes. */
static const dlp_part_files *dlpi_tar_files_of(dlp_part_fn load, const void *user) {
    const dlp_tar_parts *p = load == dlp_tar_load ? user : NULL;
    return p != NULL ? dlpi_part_files_of(p->load, p->user) : NULL;
}

/* Append a place behind the bytes of a part, where the room is fixed. Returns false if it is full.
 */
static bool dlpi_tar_table_add(void *to, uint64_t at) {
    dlpi_places *p = to;
    if (p->n == p->room) return false;
    p->at[p->n++] = at;
    return true;
}

DLPDEF int dlp_tar_load(void *parts, dlp_part *part) {
    const dlp_tar_parts *p = parts;
    const dlpi_tar_call c = {part->call, dlpi_tar_name(p->desc, part->index), p->desc, NULL};
    dlpi_tar t = {.bytes = part->data, .d = p->desc};
    dlpi_places to; /* one of each sample, and that of the end; behind them their number */
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
        if (t.code != DLP_ERR_MEMORY || t.errnum != 0) return dlpi_tar_say(&t, &c, 0);
        dlpi_tar_fail(&c, 0,
                      "max_part_bytes is %" PRIu64 ", too little for %" PRIu64 " samples and "
                      "more; raise it",
                      part->capacity, to.n);
        return DLP_ERR_LENGTH;
    }
    to.at[to.n] = to.n - 1;
    part->bytes = begins + (to.n + 1) * 8;
    if (part->items != 0 && part->items != to.n - 1)
        return dlpi_tar_fail(&c, 0, "the shard has %" PRIu64 " samples, the part says %" PRIu64,
                             to.n - 1, part->items);
    part->items = to.n - 1;
    return 0;
}

DLPDEF int dlp_tar_fetch(void *parts, dlp_item *item) {
    const dlp_tar_parts *p = parts;
    const dlp_part *part = item->part;
    const uint64_t words = part != NULL && part->bytes % 8 == 0 ? part->bytes / 8 : 0;
    const uint64_t *word, *at;
    dlpi_tar_call c;
    uint64_t n;
    if (words < 2) return dlp_fail(item->call, 0, "the part is none that dlp_tar_load loaded");
    word = part->data;
    n = word[words - 1];
    at = word + words - 2 - (n < words - 1 ? n : 0);
    if (n >= words - 1 || part->item >= n || at[part->item] > at[part->item + 1] ||
        at[part->item + 1] > part->bytes)
        return dlp_fail(item->call, 0, "the part is none that dlp_tar_load loaded");
    c = (dlpi_tar_call){item->call, dlpi_tar_name(p->desc, part->index), p->desc,
                        item->worker_state};
    return dlpi_tar_item(&c, item, (const uint8_t *)part->data + at[part->item],
                         at[part->item + 1] - at[part->item], at[part->item]);
}

/* Make an item as soon as the next one begins. */
typedef struct dlpi_tar_expander {
    dlp_expand *x;
    dlpi_tar_call c;
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
                             : dlpi_tar_item(&e->c, item, (const uint8_t *)input->data[0] + e->from,
                                             at - e->from, e->from);
    }
    e->from = at;
    e->any = true;
    return e->rc == 0;
}

DLPDEF int dlp_tar_expand(void *desc, dlp_expand *x) {
    const dlp_tar_desc *d = desc;
    dlpi_tar t = {.bytes = x->item->data[0], .size = x->item->length[0], .d = d};
    const dlpi_tar_call c = {x->call, dlpi_tar_name(d, x->item->index), d, x->item->worker_state};
    dlpi_tar_expander e = {x, c, 0, false, 0};
    if (dlpi_tar_samples(&t, dlpi_tar_expand_add, &e) == 0) return 0;
    return e.rc != 0 ? e.rc : dlpi_tar_say(&t, &c, 0);
}
