#!/bin/sh
# numpy takes the batches over, without a copy, by DLPack: its contents, writes that both sides see,
# and that a batch goes back when numpy drops the array. 77 where there is no numpy.
dir=build/dlpack_numpy
. tests/rig/shell_rig
fresh_dir

python=''
for p in python3 /usr/bin/python3; do
    "$p" -c 'import numpy; numpy.from_dlpack' >/dev/null 2>&1 && python=$p && break
done
[ -n "$python" ] || skip 'python3-numpy (1.23 or later) is not installed'

cat >"$dir/library.c" <<'END'
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

static int fetch(void *user, dlp_item *item) {
    float *x = item->data[0];
    (void)user;
    for (int i = 0; i < 6; i++) x[i] = (float)item->index * 10 + (float)i;
    *(int16_t *)item->data[1] = (int16_t)-(int)item->index;
    item->length[2] = item->index % 5;
    return 0;
}

dlp_pipe *begin(void);
dlp_pipe *begin(void) {
    dlp_field fields[3] = {{"x", DLP_F32, 2, {2, 3}, 0, 0},
                           {"y", DLP_I16, 0, {0}, 0, 0},
                           {"z", DLP_U8, 1, {4}, 1, 0}};
    dlp_loader_desc d;
    dlp_pipe *p = NULL;
    memset(&d, 0, sizeof d);
    d.dataset.n_items = 50;
    d.dataset.fields = fields;
    d.dataset.n_fields = 3;
    d.dataset.fetch = fetch;
    d.batch_size = 8;
    d.num_workers = 2;
    return dlp_loader_open(&p, &d, NULL) == DLP_OK ? p : NULL;
}
END
${CC:-cc} -std=c11 -O0 -shared -fPIC -o "$dir/library.so" "$dir/library.c" -lpthread || exit 1

cat >"$dir/take.py" <<'END'
import ctypes as c, sys, numpy as np

lib = c.CDLL(sys.argv[1])
lib.begin.restype = c.c_void_p
api = c.pythonapi
api.PyCapsule_New.restype = c.py_object
api.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]

INDEX, VALID, LENGTHS = 1, 2, 3

class Tensor:  # what numpy.from_dlpack asks for
    def __init__(self, pipe, batch, field, rows=0):
        self.at = c.c_void_p()
        if rows:
            rc = lib.dlp_batch_dlpack_rows(pipe, batch, rows, field, c.byref(self.at), None)
        else:
            rc = lib.dlp_batch_dlpack(pipe, batch, field, c.byref(self.at))
        assert rc == 0, rc
    def __dlpack__(self, stream=None):
        return api.PyCapsule_New(self.at, b"dltensor", None)
    def __dlpack_device__(self):
        return (1, 0)

HELD, END = -6, 4099
pipe, batch, n = c.c_void_p(lib.begin()), c.c_void_p(), 0
while True:
    rc = lib.dlp_pipe_next(pipe, c.byref(batch))
    if rc == END:
        break
    assert rc == 0, rc
    x, y = (np.from_dlpack(Tensor(pipe, batch, f)) for f in range(2))
    index = np.arange(n, min(n + 8, 50))
    assert x.shape == (len(index), 2, 3) and x.dtype == np.float32 and x.strides == (24, 12, 4)
    assert y.shape == (len(index),) and y.dtype == np.int16
    assert (x.reshape(-1, 6) == index[:, None] * 10 + np.arange(6)).all(), x
    assert (y == -index).all(), y
    assert x.__array_interface__["data"][0] % 64 == 0
    rows, valid, lengths = (np.from_dlpack(Tensor(pipe, batch, 2, k))
                            for k in (INDEX, VALID, LENGTHS))
    assert rows.dtype == np.int64 and (rows == index).all(), rows
    assert lengths.dtype == np.int64 and (lengths == index % 5).all(), lengths
    assert valid.dtype == np.uint8 and (valid == 1).all(), valid
    n += len(index)
    part = x[1:, 0]  # keeps the batch, alone
    del x, y, valid, lengths
    assert lib.dlp_pipe_next(pipe, c.byref(batch)) == HELD
    assert part[0, 0] == index[1] * 10
    del part
    assert lib.dlp_pipe_next(pipe, c.byref(batch)) == HELD
    assert (rows == index).all()
    del rows
assert n == 50
pipe = c.c_void_p(lib.begin())
assert lib.dlp_pipe_next(pipe, c.byref(batch)) == 0
y = np.from_dlpack(Tensor(pipe, batch, 1))
assert lib.dlp_pipe_close(pipe) == 0
assert (y == -np.arange(8)).all()  # outlives the pipe
del y
print("numpy", np.__version__, "took", n, "items over")
END
exec "$python" "$dir/take.py" "$dir/library.so"
