#pragma once
/* tests: system/source/identity */
#include "order/identity.h"
#include "source/mapped.h"
/* ---- what the files of a source are: names, sizes, and some of their bytes ---- */

enum { DLPI_IDENTITY_BYTES = 4096 };

_Static_assert(offsetof(dlpi_mapped, path) == 0, "files that are open are a list of names");

/* Return file i of a list of files that are open. */
static const dlpi_mapped *dlpi_opened_at(const dlpi_names *l, uint64_t i) {
    return (const dlpi_mapped *)(const void *)((const uint8_t *)l->of + i * l->stride);
}

/* Add the first and the last bytes of file i, which was opened, to the hash *h. Returns false if
   they cannot be read. A file whose descriptor was closed is opened once more. */
static bool dlpi_identity_read(const dlpi_names *l, uint64_t i, uint64_t *h) {
    const dlpi_mapped *m = dlpi_opened_at(l, i);
    uint8_t bytes[2 * DLPI_IDENTITY_BYTES];
    const uint64_t first = m->size < sizeof bytes ? m->size : DLPI_IDENTITY_BYTES;
    const uint64_t last = m->size < sizeof bytes ? 0 : DLPI_IDENTITY_BYTES;
    dlpi_mapped again = *m;
    const dlpi_mapped *from = m->fd < 0 ? &again : m;
    bool whole;
    if (m->fd < 0 && dlpi_handle_open(&again.fd, m->path, DLPI_READ) != 0) return false;
    whole = dlpi_mapped_pread(from, 0, first, bytes) == (int64_t)first &&
            dlpi_mapped_pread(from, m->size - last, last, bytes + first) == (int64_t)last;
    if (m->fd < 0) dlpi_handle_close(again.fd);
    if (whole) *h = dlpi_absorb_bytes(*h, bytes, first + last);
    return whole;
}

/* Add the size of file i, of which the path alone is known, to the hash *h. Returns false if the
   file is not there yet, or is no regular file. */
static bool dlpi_identity_size(const dlpi_names *l, uint64_t i, uint64_t *h) {
    dlpi_facts st;
    if (dlpi_path_facts(dlpi_name_at(l, i), true, &st) != 0 || st.kind != DLPI_IS_FILE)
        return false;
    *h = dlpi_absorb(*h, st.bytes);
    return true;
}

/* Return a hash of what `add` adds for each file: for 256 of them if there are more. 0: `add` has
   returned false. */
static uint64_t dlpi_identity_some(const dlpi_names *l,
                                   bool (*add)(const dlpi_names *l, uint64_t i, uint64_t *h)) {
    const uint64_t n = l->n < DLPI_IDENTITY_FILES ? l->n : DLPI_IDENTITY_FILES;
    uint64_t h = n;
    for (uint64_t i = 0; i < n; i++)
        if (!add(l, i * l->n / n, &h)) return 0;
    return dlpi_known(h);
}

/* Add to *to what n files that are open are, in their order: their names, sizes and some of their
   bytes. The record of each begins with a dlpi_mapped. moved: the desc says that the names do not
   count. */
static void dlpi_identity_files(dlp_identity *to, const void *files, uint64_t n, size_t stride,
                                int32_t moved) {
    const dlpi_names l = {files, n, stride, NULL};
    dlp_identity id = {.sizes = n, .moved = moved};
    dlpi_identity_names(&id, &l);
    for (uint64_t i = 0; i < n; i++) id.sizes = dlpi_absorb(id.sizes, dlpi_opened_at(&l, i)->size);
    id.sizes = dlpi_known(id.sizes);
    id.content = dlpi_identity_some(&l, dlpi_identity_read);
    dlpi_identity_add(to, &id);
}

/* Set *to to what n files are of which the paths alone are known: their names and sizes. moved: as
   above. */
static void dlpi_identity_paths(dlp_identity *to, const char *const *paths, uint64_t n,
                                int32_t moved) {
    const dlpi_names l = {paths, n, sizeof *paths, NULL};
    *to = (dlp_identity){.sizes = dlpi_identity_some(&l, dlpi_identity_size), .moved = moved};
    dlpi_identity_names(to, &l);
}
