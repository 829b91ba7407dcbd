/* needs: lines */
#pragma once
/* tests: system/source/lines, system/source/tar */
#include "api/order.h"
#include "source/mapped.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-item-index     WHERE ITEMS LIE IN A FILE
   A file of items is cut at n + 1 places: item i lies in bytes [at[i], at[i + 1]). An index file
   holds 8 words that say which file it belongs to, and then these places. All words are in the
   machine's order. The index is a hint: two places are compared with the file's length whenever
   they are read, and a format compares the bytes there with what it expects. So an index that is
   cut, old or made up gives errors, and no read outside a buffer.

   A new index is written under a name of its own, and renamed. So several processes may write the
   same index at once, and a reader maps a whole one. A writer that dies leaves that other
   name. >>impl-index-turn says which process writes it. */

enum { DLPI_INDEX_WORDS = 8 };

/* What an index is about. */
typedef struct dlpi_index_key {
    uint64_t kind;           /* kind of the items: DLPI_INDEX_* */
    uint64_t bytes, time_ns; /* length of the file; time of its last change */
} dlpi_index_key;

enum { DLPI_INDEX_LINES = 1, DLPI_INDEX_NO_EMPTY = 2, DLPI_INDEX_TAR = 3 };

typedef struct dlpi_index {
    const uint64_t *at; /* [n + 1]; in a mapping another process may change them */
    uint64_t n;         /* items */
    uint64_t most;      /* bytes of the longest item */
    void *memory;       /* the mapping or heap memory that has `at` */
    size_t mapped;      /* bytes of the mapping; 0: memory is from malloc */
} dlpi_index;

/* Places that are being found. */
typedef struct dlpi_places {
    uint64_t *at;     /* [room] owned: the caller frees it */
    uint64_t n, room; /* places in use, and allocated */
} dlpi_places;

/* Append a place. Returns false if there is no memory. */
static bool dlpi_places_add(dlpi_places *p, uint64_t at) {
    if (p->n == p->room) {
        uint64_t *more = dlpi_room_for(p->at, p->n, &p->room, sizeof *more);
        if (more == NULL) return false;
        p->at = more;
    }
    p->at[p->n++] = at;
    return true;
}

/* Return the index of n items in memory. at: [n + 1] places, of malloc; the index owns them. */
DLPI_COLD static dlpi_index dlpi_index_of(uint64_t *at, uint64_t n) {
    dlpi_index x = {.at = at, .n = n, .memory = at};
    for (uint64_t i = 0; at != NULL && i < n; i++)
        if (at[i + 1] - at[i] > x.most) x.most = at[i + 1] - at[i];
    return x;
}

/* ---- index files ---- */

/* Compute the header that an index file must have for this file and these counts. Its last word is
   a hash of the others. */
DLPI_COLD static void dlpi_index_head(uint64_t head[DLPI_INDEX_WORDS], const dlpi_index_key *key,
                                      const dlpi_index *x) {
    const uint64_t first = UINT64_C(0x0131787069706c64); /* "dlpipx1", and its version */
    const uint64_t words[DLPI_INDEX_WORDS - 1] = {first, key->kind, key->bytes, key->time_ns,
                                                  x->n,  x->most,   0};
    head[DLPI_INDEX_WORDS - 1] = 0;
    for (int i = 0; i < DLPI_INDEX_WORDS - 1; i++) {
        head[i] = words[i];
        head[DLPI_INDEX_WORDS - 1] = dlp_hash(head[DLPI_INDEX_WORDS - 1], words[i], 0, 0);
    }
}

/* Write into `to` the name of a file's index: beside the file, or in `directory`, where a number
   tells files of one name apart. Returns false if it is too long. */
DLPI_COLD static bool dlpi_index_path(char to[DLPI_PATH_MAX], const char *directory,
                                      const char *path) {
    const char *name = path;
    uint64_t number = 0;
    int n;
    if (directory == NULL) {
        n = snprintf(to, DLPI_PATH_MAX, "%s.dlpidx", path);
    } else {
        for (const char *c = path; *c; c++) {
            number = dlp_hash(number, (uint8_t)*c, 0, 0);
            if (dlpi_is_slash(*c)) name = c + 1;
        }
        n = snprintf(to, DLPI_PATH_MAX, "%s/%s.%016" PRIx64 ".dlpidx", directory, name, number);
    }
    return n > 0 && n < DLPI_PATH_MAX;
}

/* True if a mapped index of `bytes` bytes belongs to the file of *key. Fills in its counts. */
DLPI_COLD static bool dlpi_index_fits(dlpi_index *x, const dlpi_index_key *key, uint64_t bytes) {
    uint64_t head[DLPI_INDEX_WORDS], want[DLPI_INDEX_WORDS];
    memcpy(head, x->memory, sizeof head);
    x->n = head[4];
    x->most = head[5];
    dlpi_index_head(want, key, x);
    return memcmp(head, want, sizeof head) == 0 && x->most <= key->bytes && x->n <= key->bytes &&
           bytes == (DLPI_INDEX_WORDS + x->n + 1) * sizeof(uint64_t);
}

/* Free or unmap an index, and clear its record. */
DLPI_COLD static void dlpi_index_free(dlpi_index *x) {
    if (x->mapped > 0)
        dlpi_handle_unmap(x->memory, x->mapped);
    else
        free(x->memory);
    memset(x, 0, sizeof *x);
}

/* Map the index file at `path` into *x. Returns false if there is none that belongs to the file
   that key describes; then *x is empty. */
DLPI_COLD static bool dlpi_index_map(dlpi_index *x, const char *path, const dlpi_index_key *key) {
    dlpi_mapped m;
    memset(x, 0, sizeof *x);
    if (dlpi_mapped_open(&m, path, false, 1, NULL) == DLP_OK &&
        m.size >= (DLPI_INDEX_WORDS + 1) * sizeof(uint64_t)) {
        x->memory = (void *)(uintptr_t)m.bytes;
        x->mapped = (size_t)m.size;
        x->at = (const uint64_t *)x->memory + DLPI_INDEX_WORDS;
        m.bytes = NULL; /* the mapping is the index's */
    }
    dlpi_mapped_close(&m);
    if (x->memory == NULL || dlpi_index_fits(x, key, x->mapped)) return x->memory != NULL;
    dlpi_index_free(x);
    return false;
}

/* Write n bytes to a file from byte `at` on. scan: is told before each piece. Returns 0 or errno.
   */
DLPI_COLD static int dlpi_index_put(dlpi_handle f, uint64_t at, const void *bytes, uint64_t n,
                                    dlpi_scan *scan, uint64_t size) {
    const uint64_t most = 1u << 24;
    int rc = 0;
    for (uint64_t i = 0; i < n && rc == 0; i += most) {
        scan->seen(scan, size);
        rc = dlpi_handle_write(f, (const uint8_t *)bytes + i, n - i < most ? n - i : most, at + i);
    }
    return rc;
}

/* Write the index x into the file `path`, which gets its name once it is complete. key: tells which
   file the index is of. scan: is told that the work goes on. Returns 0 or errno; on failure an
   older file stays as it is. */
DLPI_COLD static int dlpi_index_write(const dlpi_index *x, const char *path,
                                      const dlpi_index_key *key, dlpi_scan *scan) {
    char name[DLPI_PATH_MAX + 16];
    uint64_t head[DLPI_INDEX_WORDS];
    dlpi_handle fd;
    int rc, closed;
    if (!dlpi_file_may_be((DLPI_INDEX_WORDS + x->n + 1) * sizeof(uint64_t))) return EFBIG;
    snprintf(name, sizeof name, "%s.%08x.new", path,
             (unsigned)dlp_hash((uint64_t)dlpi_process_number(), (uint64_t)(uintptr_t)x,
                                dlpi_real_ns(), 0));
    if ((rc = dlpi_file_new(&fd, name, 0)) != 0) return rc;
    dlpi_index_head(head, key, x);
    rc = dlpi_index_put(fd, 0, head, sizeof head, scan, key->bytes);
    if (rc == 0)
        rc = dlpi_index_put(fd, sizeof head, x->at, (x->n + 1) * sizeof *x->at, scan, key->bytes);
    if ((closed = dlpi_handle_close(fd)) != 0 && rc == 0) rc = closed;
    if (rc == 0) rc = dlpi_path_rename(name, path);
    if (rc != 0) dlpi_path_remove(name);
    return rc;
}

/* Find bytes [*from, *to) of item i. Returns false if a file of `bytes` bytes has no such bytes. */
static inline bool dlpi_index_item(const dlpi_index *x, uint64_t bytes, uint64_t i, uint64_t *from,
                                   uint64_t *to) {
    memcpy(from, x->at + i, sizeof *from); /* copied once, then checked */
    memcpy(to, x->at + i + 1, sizeof *to);
    return *from < *to && *to <= bytes;
}
