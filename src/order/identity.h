#pragma once
/* tests: system/source/identity */
#include "api/dataset.h"
#include "base/system.h"
#include "order/order.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-identity   WHAT THE DATA OF A SOURCE ARE
   A state must not go on with other files than it was saved from. So it has four small hashes of
   the files: their names in any order, their names in order, their sizes, and some of their bytes.
   Each of the four tells something else in an error. Here: the hashes of names, and what a pipe
   makes of several sources. */

/* The hashes of an identity, by number. */
enum { DLPI_NAMES, DLPI_ORDER, DLPI_SIZES, DLPI_CONTENT, DLPI_HASHES };

enum { DLPI_IDENTITY_FILES = 256 }; /* files of a source that are looked at one by one, at most */

/* A list of names. */
typedef struct dlpi_names {
    const void *of; /* records, each of which begins with its name, a pointer; or argument of at */
    uint64_t n;
    size_t stride; /* bytes from one record to the next */
    /* Return name i, or NULL if it has none. NULL: the records begin with their names. */
    const char *(*at)(const void *of, uint64_t i);
} dlpi_names;

/* Return h, or another number if h is 0, which means that nothing is known. */
static inline uint64_t dlpi_known(uint64_t h) { return h != 0 ? h : 1; }

/* Return the hash h with n bytes in it. It is quicker than dlpi_absorb for each word, for lists of
   millions of names. */
static uint64_t dlpi_absorb_bytes(uint64_t h, const void *bytes, uint64_t n) {
    const uint8_t *at = bytes;
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        if (n - i < 8)
            memcpy(&word, at + i, (size_t)(n - i));
        else
            memcpy(&word, at + i, 8);
        h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return dlpi_absorb(h, n);
}

static const char *dlpi_name_at(const dlpi_names *l, uint64_t i) {
    const void *at = (const uint8_t *)l->of + i * l->stride;
    const char *name = l->at != NULL ? l->at(l->of, i) : *(const char *const *)at;
    return name != NULL ? name : "";
}

/* Return a byte of a name, in which each slash counts as '/'. */
DLPI_INLINE char dlpi_name_byte(char c) { return dlpi_is_slash(c) ? '/' : c; }

/* Return the bytes of the folder that all names have in common, with its last slash. */
static size_t dlpi_names_folder(const dlpi_names *l) {
    const char *first = l->n > 0 ? dlpi_name_at(l, 0) : "";
    size_t n = strlen(first);
    for (uint64_t i = 0; i < l->n; i++) {
        const char *name = dlpi_name_at(l, i);
        size_t alike = 0;
        if (strncmp(name, first, n) == 0) continue;
        while (alike < n && dlpi_name_byte(name[alike]) == dlpi_name_byte(first[alike])) alike++;
        n = alike;
    }
    while (n > 0 && !dlpi_is_slash(first[n - 1])) n--;
    return n;
}

/* Return the hash of a name of n bytes. It is the same on each system, whose slashes may differ. */
static uint64_t dlpi_name_hash(const char *name, size_t n) {
    char plain[DLPI_PATH_MAX];
    if (!dlpi_is_slash('\\') || n > sizeof plain) return dlpi_absorb_bytes(0, name, n);
    for (size_t i = 0; i < n; i++) plain[i] = dlpi_name_byte(name[i]);
    return dlpi_absorb_bytes(0, plain, n);
}

/* Set the hashes of names, which are the parts behind the folder that all have in common. So a
   dataset may be moved to another folder as it is. */
static void dlpi_identity_names(dlp_identity *id, const dlpi_names *l) {
    const size_t folder = dlpi_names_folder(l);
    id->names = id->order = l->n;
    for (uint64_t i = 0; i < l->n; i++) {
        const char *name = dlpi_name_at(l, i);
        const size_t n = strlen(name);
        const uint64_t h = n >= folder ? dlpi_name_hash(name + folder, n - folder) : 0;
        id->names += h;
        id->order = dlpi_absorb(id->order, h);
    }
    id->names = dlpi_known(dlpi_mix(id->names));
    id->order = dlpi_known(id->order);
}

/* Add what another source says to *to, which has what the sources before it say. from: may be NULL.
   What one source alone says stays as it is. */
static void dlpi_identity_add(dlp_identity *to, const dlp_identity *from) {
    uint64_t *const sum[] = {&to->names, &to->order, &to->sizes, &to->content};
    const dlp_identity none = {.names = 0}, *id = from != NULL ? from : &none;
    const uint64_t more[] = {id->names, id->order, id->sizes, id->content};
    for (int i = 0; i < DLPI_HASHES; i++) {
        const uint64_t before = dlpi_mix(*sum[i]); /* absorb alone has no order of its two words */
        if (more[i] != 0)
            *sum[i] = *sum[i] != 0 ? dlpi_known(dlpi_absorb(before, more[i])) : more[i];
    }
    if (id->moved) to->moved = 1;
}

/* Write the hashes into out[DLPI_HASHES] in as few bits as a state has for them. Such a hash is 0
   only if nothing is known. */
static void dlpi_identity_short(const dlp_identity *id, uint32_t *out) {
    static const uint8_t bits[] = {16, 24, 15, 24};
    const uint64_t all[] = {id->names, id->order, id->sizes, id->content};
    for (int i = 0; i < DLPI_HASHES; i++)
        out[i] = all[i] == 0 ? 0 : (uint32_t)dlpi_known(dlpi_mix(all[i]) >> (64 - bits[i]));
}
