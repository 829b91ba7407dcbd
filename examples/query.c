/* One query for many items: fetch_rows asks a table of SQLite for all items of a call at once. Item
   i is the row t(id, x) with id = i; the items come in a shuffled order, and their sum is printed.
     query FILE ITEMS
     cc -O2 query.c -lsqlite3 -lpthread
   The rows of a query come in any order, so each row looks for its item. An id that is not in the
   table ends the run with an error that names it; with .on_error = DLP_ON_ERROR_DROP only that row
   of the batch would be left out. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
enum { MOST = 32 }; /* items of a call */
static int begin(void *path, int worker, void **state) {
    (void)worker;
    char query[256] = "SELECT id, x FROM t WHERE id IN (?";
    for (int i = 1; i < MOST; i++) snprintf(query + strlen(query), 3, ",?");
    snprintf(query + strlen(query), 2, ")");
    sqlite3 *db = NULL;
    return sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) ||
           sqlite3_prepare_v2(db, query, -1, (sqlite3_stmt **)state, NULL);
}
static int fetch_rows(void *user, dlp_item *items, uint32_t n, uint32_t *made) {
    (void)user;
    sqlite3_stmt *rows = items[0].worker_state;
    uint32_t found = 0;                    /* a bit for each item */
    int rc = sqlite3_clear_bindings(rows); /* NULL, which is no id */
    for (uint32_t i = 0; i < n && rc == SQLITE_OK; i++)
        rc = sqlite3_bind_int64(rows, (int)i + 1, (sqlite3_int64)items[i].index);
    while (rc == SQLITE_OK && sqlite3_step(rows) == SQLITE_ROW) {
        const uint64_t id = (uint64_t)sqlite3_column_int64(rows, 0);
        uint32_t i = 0;
        while (i < n && items[i].index != id) i++;
        if (i == n) continue;
        *(double *)items[i].data[0] = sqlite3_column_double(rows, 1);
        found |= UINT32_C(1) << i;
    }
    if (sqlite3_reset(rows) != SQLITE_OK || rc != SQLITE_OK) /* nothing is made: *made is 0 */
        return dlp_fail(items[0].call, EIO, "%s", sqlite3_errmsg(sqlite3_db_handle(rows)));
    while (*made < n && (found >> *made & 1) != 0) ++*made;
    if (*made == n) return 0;
    return dlp_fail(items[*made].call, ENOENT, "t has no id %llu",
                    (unsigned long long)items[*made].index);
}
static void end(void *user, int worker, void *state) {
    (void)user, (void)worker;
    sqlite3 *db = sqlite3_db_handle(state);
    sqlite3_finalize(state), sqlite3_close(db);
}
int main(int argc, char **argv) {
    const dlp_field x = {.name = "x", .dtype = DLP_F64};
    dlp_loader_desc desc = {.batch_size = 100, .num_workers = 2, .shuffle = 1};
    desc.dataset = (dlp_dataset){.fields = &x, .n_fields = 1, .fetch_rows = fetch_rows};
    desc.workers = (dlp_workers_desc){
        .worker_init = begin, .worker_exit = end, .worker_user = argc > 1 ? argv[1] : NULL};
    desc.dataset.n_items = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    double sum = 0;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    while (dlp_pipe_next(pipe, &batch) == DLP_OK) {
        for (uint32_t i = 0; i < batch->count; i++) sum += ((double *)batch->fields[0].data)[i];
        dlp_pipe_release(pipe, batch);
    }
    printf("sum %.1f %s\n", sum, dlp_pipe_error(pipe)->message);
    return dlp_pipe_error(pipe)->code != DLP_OK || dlp_pipe_close(pipe) != DLP_OK;
}
