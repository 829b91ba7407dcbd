/* A handle for each worker: worker_init opens it, fetch uses it, worker_exit closes it. The command
   handle FILE ITEMS prints the sum of items 0 .. ITEMS - 1 of SQLite, LMDB or HDF5.
     cc -O2 handle.c -lsqlite3 -lpthread                                   table t(id, x), id = i
     cc -O2 -DLMDB handle.c -llmdb -lpthread                               keys are size_t i
     cc -O2 -DHDF5 handle.c $(pkg-config --cflags --libs hdf5) -lpthread   dataset x of doubles
   If handles share state, take one worker, a lock of your own around the calls, or processes. HDF5
   has one lock or none, and a process opens a file of LMDB once: their workers are processes. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include "../dlpipe_shm.h"
#include <stdio.h>
#include <stdlib.h>
#if defined(LMDB)
#include <lmdb.h>
#define WORKERS .placement = DLP_PLACE_PROCESSES /* the system closes what they opened */
static MDB_dbi keys;                             /* of this process */
static int open_file(const char *path, void **txn) {
    MDB_env *env = NULL;
    return mdb_env_create(&env) || mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY, 0) ||
           mdb_txn_begin(env, NULL, MDB_RDONLY, (MDB_txn **)txn) ||
           mdb_dbi_open(*txn, NULL, MDB_INTEGERKEY, &keys);
}
static int get(void *txn, size_t i, double *x) {
    MDB_val key = {sizeof i, &i}, value;
    if (mdb_get(txn, keys, &key, &value) || value.mv_size != sizeof *x) return -1;
    return memcpy(x, value.mv_data, sizeof *x), 0;
}
#elif defined(HDF5)
#include <hdf5.h>
#define WORKERS .placement = DLP_PLACE_PROCESSES /* the system closes what they opened */
static hid_t set, all, one; /* of this process */
static int open_file(const char *path, void **handle) {
    set = H5Dopen2(H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), "x", H5P_DEFAULT);
    all = H5Dget_space(set), one = H5Screate(H5S_SCALAR);
    return *handle = &set, set < 0;
}
static int get(void *handle, hsize_t i, double *x) {
    return H5Sselect_elements(all, H5S_SELECT_SET, 1, &i) < 0 ||
           H5Dread(*(hid_t *)handle, H5T_NATIVE_DOUBLE, one, all, H5P_DEFAULT, x) < 0;
}
#else
#include <sqlite3.h>
#define WORKERS .worker_exit = close_file
static int open_file(const char *path, void **row) {
    sqlite3 *db = NULL;
    return sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) ||
           sqlite3_prepare_v2(db, "SELECT x FROM t WHERE id = ?", -1, (sqlite3_stmt **)row, NULL);
}
static int get(void *row, uint64_t i, double *x) {
    if (sqlite3_bind_int64(row, 1, (sqlite3_int64)i) || sqlite3_step(row) != SQLITE_ROW) return -1;
    return *x = sqlite3_column_double(row, 0), sqlite3_reset(row);
}
static void close_file(void *user, int worker, void *row) {
    (void)user, (void)worker, sqlite3_close_v2(sqlite3_db_handle(row)), sqlite3_finalize(row);
}
#endif
static int begin(void *path, int worker, void **to) { return (void)worker, open_file(path, to); }
static int fetch(void *user, dlp_item *item) {
    if (!get(item->worker_state, item->index, item->data[0])) return 0;
    return dlp_fail(item->call, 0, "%s: item %d is not there", (char *)user, (int)item->index);
}
int main(int argc, char **argv) {
    const dlp_field x = {.name = "x", .dtype = DLP_F64};
    dlp_loader_desc desc = {.batch_size = 100, .num_workers = 4};
    desc.dataset = (dlp_dataset){.fields = &x, .n_fields = 1, .fetch = fetch, .user = argv[1]};
    desc.workers = (dlp_workers_desc){.worker_init = begin, .worker_user = argv[1], WORKERS};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    double sum = 0;
    if (argc != 3 || !(desc.dataset.n_items = strtoull(argv[2], NULL, 10)))
        return puts("handle FILE ITEMS"), 2;
    if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) return puts(err.message), 1;
    while (dlp_pipe_next(pipe, &batch) == DLP_OK) {
        for (uint32_t i = 0; i < batch->count; i++) sum += dlp_f64(batch, "x")[i];
        dlp_pipe_release(pipe, batch);
    }
    printf("sum %.1f %s\n", sum, dlp_pipe_error(pipe)->message);
    return dlp_pipe_error(pipe)->code != DLP_OK || dlp_pipe_close(pipe) != DLP_OK;
}
