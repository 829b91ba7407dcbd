/* A handle for each worker: worker_init opens it, fetch uses it, worker_exit closes it. Item i is a
   row of a table of SQLite, a key of LMDB, or a number of HDF5; the sum of all is printed.
     handle FILE ITEMS
     cc -O2 handle.c -lsqlite3 -lpthread                                   table t(id, x), id = i
     cc -O2 -DLMDB handle.c -llmdb -lpthread                               keys are size_t i
     cc -O2 -DHDF5 handle.c $(pkg-config --cflags --libs hdf5) -lpthread   dataset x of doubles
   Handles of some libraries share state: then take one worker, a lock of your own around the calls,
   or processes. HDF5 has one lock or none, and a process opens a file of LMDB once, so the workers
   of these two are processes here. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include "../dlpipe_shm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(LMDB)
#include <lmdb.h>
static MDB_dbi keys; /* of this process */
static int begin(void *path, int worker, void **state) {
    (void)worker;
    MDB_env *env = NULL;
    return mdb_env_create(&env) || mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY, 0) ||
           mdb_txn_begin(env, NULL, MDB_RDONLY, (MDB_txn **)state) ||
           mdb_dbi_open(*state, NULL, MDB_INTEGERKEY, &keys);
}
static int fetch(void *user, dlp_item *item) {
    (void)user;
    size_t i = item->index;
    MDB_val key = {sizeof i, &i}, x;
    if (mdb_get(item->worker_state, keys, &key, &x) || x.mv_size != 8) return ENOENT;
    return memcpy(item->data[0], x.mv_data, 8), 0;
}
#elif defined(HDF5)
#include <hdf5.h>
static int begin(void *path, int worker, void **state) {
    (void)worker;
    static hid_t set; /* of this process */
    *state = &set;
    set = H5Dopen2(H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), "x", H5P_DEFAULT);
    return set < 0 ? EIO : 0;
}
static int fetch(void *user, dlp_item *item) {
    (void)user;
    const hsize_t i = item->index, one = 1;
    hid_t set = *(hid_t *)item->worker_state, cell = H5Screate_simple(1, &one, NULL);
    hid_t all = H5Dget_space(set);
    int bad = H5Sselect_hyperslab(all, H5S_SELECT_SET, &i, NULL, &one, NULL) < 0 ||
              H5Dread(set, H5T_NATIVE_DOUBLE, cell, all, H5P_DEFAULT, item->data[0]) < 0;
    return H5Sclose(cell) < 0 || H5Sclose(all) < 0 || bad ? EIO : 0;
}
#else
#include <sqlite3.h>
static int begin(void *path, int worker, void **state) {
    (void)worker;
    sqlite3 *db = NULL;
    return sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) ||
           sqlite3_prepare_v2(db, "SELECT x FROM t WHERE id = ?", -1, (sqlite3_stmt **)state, NULL);
}
static int fetch(void *user, dlp_item *item) {
    (void)user;
    sqlite3_stmt *row = item->worker_state;
    if (sqlite3_bind_int64(row, 1, (sqlite3_int64)item->index) || sqlite3_step(row) != SQLITE_ROW)
        return ENOENT;
    *(double *)item->data[0] = sqlite3_column_double(row, 0);
    return sqlite3_reset(row) ? EIO : 0;
}
static void end(void *user, int worker, void *state) {
    (void)user, (void)worker;
    sqlite3 *db = sqlite3_db_handle(state);
    sqlite3_finalize(state), sqlite3_close(db);
}
#define WORKERS .worker_exit = end
#endif
#ifndef WORKERS
#define WORKERS .placement = DLP_PLACE_PROCESSES /* the system closes what they opened */
#endif
int main(int argc, char **argv) {
    const dlp_field x = {.name = "x", .dtype = DLP_F64};
    dlp_loader_desc desc = {.batch_size = 100, .num_workers = 4};
    desc.dataset = (dlp_dataset){.fields = &x, .n_fields = 1, .fetch = fetch};
    desc.workers = (dlp_workers_desc){.worker_init = begin, .worker_user = argv[1], WORKERS};
    if (argc > 2) desc.dataset.n_items = strtoull(argv[2], NULL, 10);
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
