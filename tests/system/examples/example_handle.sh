#!/bin/sh
# examples/handle.c with SQLite, LMDB and HDF5: 4 workers, each with a handle of its own, read each
# item once; one that is not there ends the pipe. examples/query.c: one query for many items.
# examples/weighted.c: classes that are drawn alike.
dir=build/example_handle
. tests/rig/shell_rig
fresh_dir

linked examples/weighted.c $dir/weighted || exit 1
timeout 60 $dir/weighted >$dir/said || fail "weighted: exit code $?: $(cat $dir/said)"
awk '{ n += $5 > 31 && $5 < 36 } END { exit n != 3 }' $dir/said || fail "weighted: $(cat $dir/said)"
timeout 60 $dir/weighted shuffled >$dir/said || fail "weighted: exit code $?"
tr -s ' ' <$dir/said | cut -d ' ' -f 5 | tr '\n' ' ' | grep -q '^90.0 9.0 1.0 $' ||
    fail "weighted shuffled: $(cat $dir/said)"

# A file of 1,000 items: item i is i / 2.
cat >$dir/make.c <<'END_OF_C'
enum { N = 1000 };
#if defined(LMDB)
#include <lmdb.h>
int main(int argc, char **argv) {
    MDB_env *env;
    MDB_txn *t;
    MDB_dbi keys;
    int bad = argc != 2 || mdb_env_create(&env) || mdb_env_open(env, argv[1], MDB_NOSUBDIR, 0600) ||
              mdb_txn_begin(env, 0, 0, &t) || mdb_dbi_open(t, 0, MDB_INTEGERKEY, &keys);
    for (size_t i = 0; !bad && i < N; i++) {
        double x = (double)i / 2;
        MDB_val key = {sizeof i, &i}, value = {sizeof x, &x};
        bad = mdb_put(t, keys, &key, &value, 0);
    }
    return bad || mdb_txn_commit(t);
}
#elif defined(HDF5)
#include <hdf5.h>
int main(int argc, char **argv) {
    double x[N];
    hsize_t n = N;
    for (int i = 0; i < N; i++) x[i] = i / 2.;
    hid_t f = H5Fcreate(argv[argc - 1], H5F_ACC_TRUNC, 0, 0), all = H5Screate_simple(1, &n, 0);
    hid_t d = H5Dcreate2(f, "x", H5T_NATIVE_DOUBLE, all, 0, 0, 0);
    return H5Dwrite(d, H5T_NATIVE_DOUBLE, 0, 0, 0, x) < 0 || H5Dclose(d) < 0 || H5Fclose(f) < 0;
}
#else
#include <sqlite3.h>
int main(int argc, char **argv) {
    sqlite3 *db;
    return sqlite3_open(argv[argc - 1], &db) ||
           sqlite3_exec(db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x REAL); "
                        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n "
                        "WHERE i < 999) INSERT INTO t SELECT i, i / 2. FROM n", 0, 0, 0) ||
           sqlite3_close(db);
}
#endif
END_OF_C

missing='' more=''
with() { # NAME MACRO HEADER FLAGS...: 1 where the header is not there
    name=$1 macro=$2 header=$3
    shift 3
    # shellcheck disable=SC2086
    printf '#include <%s>\n' $header | ${CC:-cc} "$@" -E -x c - >/dev/null 2>&1 || return 1
    ${CC:-cc} -std=c11 -w $macro -o $dir/make.$name $dir/make.c "$@" &&
        $dir/make.$name $dir/$name || fail "$name: no file could be made"
    # shellcheck disable=SC2086
    linked examples/handle.c $dir/handle.$name $macro "$@" || fail "$name: does not compile"
    timeout 60 $dir/handle.$name $dir/$name 1000 >$dir/said 2>&1 || fail "$name: exit code $?"
    grep -q '^sum 249750.0 $' $dir/said || fail "$name: $(cat $dir/said)"
    timeout 60 $dir/handle.$name $dir/$name 1001 >$dir/said 2>&1 && fail "$name: item 1000 is there"
    grep -q "^sum 249750.0 $dir/$name: item 1000 is not there" $dir/said ||
        fail "$name: $(cat $dir/said)"
    timeout 60 $dir/handle.$name $dir/nowhere/$name 1000 >$dir/said 2>&1 && fail "$name: no file"
    grep -q 'worker_init' $dir/said || fail "$name without a file: $(cat $dir/said)"
}
with sqlite '' sqlite3.h -lsqlite3 || missing="$missing libsqlite3-dev"
if [ -f $dir/sqlite ]; then
    linked examples/query.c $dir/query -lsqlite3 || fail 'query: does not compile'
    timeout 60 $dir/query $dir/sqlite 1000 >$dir/said 2>&1 || fail "query: exit code $?"
    grep -q '^sum 249750.0 $' $dir/said || fail "query: $(cat $dir/said)"
    timeout 60 $dir/query $dir/sqlite 1001 >$dir/said 2>&1 && fail 'query: item 1000 is there'
    grep -q 't has no id 1000' $dir/said || fail "query: $(cat $dir/said)"
fi
with lmdb -DLMDB lmdb.h -llmdb || missing="$missing liblmdb-dev"
flags=$(pkg-config --cflags --libs hdf5 2>/dev/null)
# shellcheck disable=SC2086
with hdf5 -DHDF5 hdf5.h $flags || more=' libhdf5-dev (make deps-more)'

[ $wrong -eq 0 ] && [ -n "$missing" ] && skip "not installed:$missing; the rest is well"
[ $wrong -eq 0 ] && [ -n "$more" ] && echo "not installed:$more; the rest is well" && exit 78
[ $wrong -eq 0 ]
