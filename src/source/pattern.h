/* needs: tokens */
#pragma once
/* tests: system/source/tokens */
#include "source/mapped.h"
/* ---- paths that match a pattern ---- */

static int dlpi_pattern_by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A search for the paths that match a pattern. */
typedef struct dlpi_pattern {
    char **paths; /* [n] found so far */
    uint64_t n, room;
    const char *rest;       /* the part of the pattern that belongs behind `at` */
    char at[DLPI_PATH_MAX]; /* the path so far */
    size_t len;             /* its bytes */
    dlp_error *err;
} dlpi_pattern;

/* Step over the piece of a pattern that stands for one byte: ?, [a-z], [!a-z], or itself, maybe
   behind a backslash. Returns whether it stands for c. */
static bool dlpi_pattern_byte(const char **at, const char *end, uint8_t c) {
    const char *p = *at, *k = p + 1;
    bool not, in = false;
    *at = k;
    if (*p == '?') return true;
    if (*p == '\\' && k < end) return *at = k + 1, (uint8_t)*k == c;
    if ((not = *p == '[' && k < end && (*k == '!' || *k == '^'))) k++;
    for (const char *first = k; *p == '[' && k < end && (*k != ']' || k == first); k++) {
        const uint8_t low = (uint8_t)*k;
        if (k + 2 < end && k[1] == '-' && k[2] != ']') k += 2;
        if (c >= low && c <= (uint8_t)*k) in = true;
    }
    if (*p != '[' || k >= end) return (uint8_t)*p == c;
    *at = k + 1;
    return in != not ;
}

/* True if a name matches the part [p, end) of a pattern. No wildcard stands for a dot in front. */
static bool dlpi_pattern_fits(const char *p, const char *end, const char *name) {
    const char *star = NULL, *from = NULL;
    if (name[0] == '.' && p < end && strchr("*?[", *p) != NULL) return false;
    while (*name != 0) {
        const char *next = p;
        if (p < end && *p == '*') {
            star = ++p;
            from = name;
        } else if (p < end && dlpi_pattern_byte(&next, end, (uint8_t)*name)) {
            p = next;
            name++;
        } else {
            if (star == NULL) return false;
            p = star;
            name = ++from;
        }
    }
    while (p < end && *p == '*') p++;
    return p == end;
}

/* Keep the path that was found, if it is there. Returns 0, or a DLP_ERR code and the error. */
static int dlpi_pattern_keep(dlpi_pattern *p) {
    char **paths;
    dlpi_facts st;
    if (dlpi_path_facts(p->at, false, &st) != 0) return DLP_OK;
    paths = dlpi_room_for(p->paths, p->n, &p->room, sizeof *paths);
    if (paths != NULL) p->paths = paths;
    if (paths == NULL || (paths[p->n] = dlpi_string_copy(p->at)) == NULL)
        return dlpi_mapped_system(p->err, p->at, "malloc", ENOMEM);
    p->n++;
    return DLP_OK;
}

static void dlpi_pattern_add(dlpi_pattern *p, const char *text, size_t n) {
    for (; n > 0 && p->len < sizeof p->at - 1; n--) p->at[p->len++] = dlpi_name_byte(*text++);
    p->at[p->len] = 0;
}

/* Go on behind a part of the pattern that matches a name (a dlpi_directory_list.each), or at the
   begin (NULL): append the name, and all parts without a wildcard. Then keep the path, or read the
   directory for the next part. Returns 0, or a DLP_ERR code and the error. */
static int dlpi_pattern_go(void *user, const char *name) {
    dlpi_pattern *p = user;
    const char *const rest = p->rest, *call = NULL;
    const size_t len = p->len;
    size_t n = name != NULL ? strcspn(rest, DLPI_SLASHES) : 0;
    int rc = 0;
    if (name != NULL && !dlpi_pattern_fits(rest, rest + n, name)) return 0;
    if (name != NULL) dlpi_pattern_add(p, name, strlen(name));
    for (p->rest += n; *p->rest != 0; p->rest += n) {
        n = strcspn(p->rest, DLPI_SLASHES);
        if (strcspn(p->rest, "*?[\\") < n) break;
        n += strspn(p->rest + n, DLPI_SLASHES);
        dlpi_pattern_add(p, p->rest, n);
    }
    if (p->len < sizeof p->at - 1) { /* else no path is so long */
        if (*p->rest == 0)
            rc = dlpi_pattern_keep(p);
        else
            rc = dlpi_directory_list(p->len > 0 ? p->at : ".", dlpi_pattern_go, p, &call);
        if (call != NULL) /* in a directory that is not there nothing matches */
            rc = rc == ENOENT || rc == ENOTDIR ? 0
                                               : dlpi_mapped_system(p->err, p->at, "opendir", rc);
    }
    p->rest = rest;
    p->at[p->len = len] = 0;
    return rc;
}

/* Find the paths that match, sorted. Returns 0, or a DLP_ERR code and the error. */
static int dlpi_pattern_paths(dlpi_pattern *p, const char *pattern) {
    int rc;
    p->rest = pattern;
    if ((rc = dlpi_pattern_go(p, NULL)) != DLP_OK) return rc;
    if (p->n == 0)
        return dlpi_error_set(p->err, DLP_ERR_ARG, "pattern",
                              "%s: no file matches; check the pattern and the working directory",
                              dlpi_path_end(pattern));
    qsort(p->paths, (size_t)p->n, sizeof *p->paths, dlpi_pattern_by_bytes);
    return DLP_OK;
}
