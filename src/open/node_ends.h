/* needs: scratch */
#pragma once
/* tests: system/core/tables, system/stages/cell_ends, system/stages/mix_ends */
#include "open/node_fetch.h"
#include "stages/scratch.h"
#include "work/collate.h"
/* ---- fields that end in a map: they lie in a stage of their own ---- */

/* Return how many names a text has, or, if only is not NULL, how often it has the name `only`.
   Spaces separate the names. */
static uint32_t dlpi_names_count(const char *names, const char *only) {
    uint32_t n = 0;
    for (names += strspn(names, " "); *names != 0; names += strspn(names, " ")) {
        const size_t length = strcspn(names, " ");
        n += only == NULL || (strlen(only) == length && strncmp(names, only, length) == 0);
        names += length;
    }
    return n;
}

/* True if `name` is one of the names in a text. */
static bool dlpi_names_have(const char *names, const char *name) {
    return name != NULL && dlpi_names_count(names, name) > 0;
}

/* Return the map in which fields of the present fetch end, or NULL if there is none. */
static const dlp_node *dlpi_ends_in(const dlpi_table *t) {
    for (uint32_t i = t->at + 1; i < t->n; i++) {
        const dlp_node *node = &t->nodes[i];
        if (node->verb == DLP_MAP && node->map.ends != NULL) return node;
        if (!dlpi_node_is(t, node, DLPI_NODE_PASSES)) return NULL;
    }
    return NULL;
}

/* Sort the fields of the fetch row `node` into *e: those that stay in the batch, then those that
   end in a later map. A fetch of a mix must have the same fields as the fetch before it. Returns 0
   or a DLP_ERR code. */
static int dlpi_ends_sort(dlpi_table *t, const dlp_node *node, const dlp_dataset *ds,
                          dlpi_ends *e) {
    const dlp_node *map = dlpi_ends_in(t);
    const dlp_source *source = node->fetch.source;
    const bool async =
        source != NULL ? source->fetcher == DLP_FETCH_ASYNC : node->fetch.async != NULL;
    const dlp_node *before = node - 1;
    const dlp_field *g = NULL;
    uint32_t m = 0;
    bool moved = false;
    if (map == NULL) return DLP_OK;
    if (before->verb == DLP_FETCH && before->fetch.of + 1 == node->fetch.of)
        g = dlpi_fetch_fields(before, &m);
    if (node->fetch.of > 1 && (g == NULL || !dlpi_fields_same(ds->fields, ds->n_fields, g, m)))
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "fetch.fields",
                           "fields end in \"%s\": fetches of the mix must follow each other "
                           "and have the same fields",
                           map->name);
    for (int ends = 0; ends < 2; ends++) {
        for (uint32_t i = 0; i < ds->n_fields; i++) {
            if (dlpi_names_have(map->map.ends, ds->fields[i].name) != (ends == 1)) continue;
            moved = moved || e->all != i;
            e->seen.at[i] = (uint8_t)e->all;
            e->fields[e->all++] = ds->fields[i];
            e->stay += ends == 0;
        }
    }
    if (e->stay == e->all) return DLP_OK;
    if (t->ending != NULL && node->fetch.of < 2)
        return dlpi_node_bad(
            t, node, "is the second fetch with fields that end; let one fetch write all of them");
    if (moved && async)
        return dlpi_refuse(t->p, DLP_ERR_ARG, node->name, "fetch.fields",
                           "with async, the fields that end in \"%s\" must come last in fields",
                           map->name);
    t->ending = map;
    t->n_ending = e->all - e->stay;
    if (moved) e->seen.n = e->all;
    return DLP_OK;
}

/* Add the stage with the cells of fields that end, behind the present fetch. In a mix it is added
   behind the last fetch of the mix. Returns a number from 0 on, or a DLP_ERR code. */
static int dlpi_ends_add(dlpi_table *t, const dlp_node *node, const dlpi_ends *e) {
    const dlp_node *next = dlpi_node_next(t, 1, DLPI_NODE_PASSES);
    uint32_t cells = 0;
    if (node->fetch.of > 0 && next != NULL && next->verb == DLP_FETCH &&
        next->fetch.of == node->fetch.of + 1)
        return DLP_OK;
    for (uint32_t i = 0; i == 0 || i < node->fetch.of; i++)
        if (cells < node[-(int32_t)i].queue.capacity) cells = node[-(int32_t)i].queue.capacity;
    t->p->node = "scratch";
    return dlpi_add_scratch(t->p, e->fields + e->stay, e->all - e->stay, cells);
}

/* Find which fields end in a map that runs in a cell: a bit for each in *ends. f: all n fields of
   the map's level, of which the map's own come last. Returns 0 or a DLP_ERR code. */
static int dlpi_ends_which(dlpi_table *t, const dlp_node *map, const dlp_field *f, uint32_t n,
                           uint32_t *ends) {
    const char *names = map->map.ends;
    uint32_t found = 0;
    *ends = 0;
    for (uint32_t i = 0; i < n - map->map.n_fields; i++)
        if (dlpi_names_have(names, f[i].name)) *ends |= 1u << i, found++;
    if (found == 0 || found != dlpi_names_count(names, NULL))
        return dlpi_refuse(t->p, DLP_ERR_ARG, map->name, "map.ends",
                           "map.ends is \"%.60s\"; name fields of the rows above \"%s\", each "
                           "once, and none that ended before",
                           names, map->name);
    if (found == n)
        return dlpi_refuse(t->p, DLP_ERR_ARG, map->name, "map.ends",
                           "map.ends leaves no field for the batch; let the map add one");
    return DLP_OK;
}

/* Return the *n fields that a row adds to those of the rows above it; NULL: it adds none. */
static const dlp_field *dlpi_row_fields(const dlpi_table *t, const dlp_node *row, uint32_t *n) {
    const dlpi_verb *verb = &t->ops->verbs[row->verb];
    *n = 0;
    return verb->fields != NULL ? verb->fields(row, n) : NULL;
}

/* Return the first row between the present map and the cells of makers, a push, or a zip or mix
   that does not work on items. Returns NULL if there is no such row. */
static const dlp_node *dlpi_ends_between(const dlpi_table *t) {
    uint32_t i = t->makes > 0 ? t->makes : 1;
    if (t->joins != NULL)
        i = (uint32_t)(t->joins - t->nodes) + 1;
    else if (t->makes == 0 && t->nodes->verb != DLP_PUSH)
        return NULL;
    for (; i < t->at; i++)
        if (!dlpi_node_is(t, &t->nodes[i], DLPI_NODE_ITEMS)) return &t->nodes[i];
    return NULL;
}

/* Compute in *seen where a map in which fields end finds each field, so that it sees them in the
   order of the table. The row has the fields that stay, then those that the map adds; the cells
   with the fields that end come last. Returns 0 or a DLP_ERR code. */
static int dlpi_ends_see(dlpi_table *t, const dlp_node *map, dlpi_seeing *seen) {
    uint32_t n, all = 0, stay = 0, ending = 0, left;
    const dlp_node *between = dlpi_ends_between(t);
    if (between != NULL && t->ending != map)
        return dlpi_refuse(
            t->p, DLP_ERR_ARG, map->name, "map.ends",
            "map.ends is \"%.60s\"; fields that were made, pushed or joined must end "
            "above \"%s\": move this map there",
            map->map.ends, between->name);
    if (t->ending != map || t->n_ending != dlpi_names_count(map->map.ends, NULL))
        return dlpi_refuse(t->p, DLP_ERR_ARG, map->name, "map.ends",
                           "map.ends is \"%.60s\"; name fields of one fetch node above, with only "
                           "fetch and guard nodes between",
                           map->map.ends);
    for (const dlp_node *row = t->nodes; row <= map; row++) {
        const dlp_field *f = dlpi_row_fields(t, row, &n);
        if (all + n > DLP_MAX_FIELDS)
            return dlpi_bad(t->p, row->name, "n_fields", "16 at most, with those of the rows above",
                            all + n);
        for (uint32_t i = 0; i < n; i++)
            seen->at[all++] = dlpi_names_have(map->map.ends, f[i].name) && row != map
                                  ? (uint8_t)(0x80 | ending++)
                                  : (uint8_t)stay++;
    }
    left = stay;
    for (const dlp_node *row = map + 1; left == 0 && row < t->nodes + t->n; row++, left = n) {
        if (row->verb == DLP_BATCH) break; /* what a map of batches adds is none of an item */
        dlpi_row_fields(t, row, &n);
    }
    if (left == 0)
        return dlpi_refuse(t->p, DLP_ERR_ARG, map->name, "map.ends",
                           "map.ends leaves no field for the batch; let the map add one");
    for (uint32_t i = 0; i < all; i++) {
        if (seen->at[i] >= 0x80) seen->at[i] = (uint8_t)(stay + (seen->at[i] & 0x7f));
        if (seen->at[i] != i) seen->n = all;
    }
    return DLP_OK;
}
