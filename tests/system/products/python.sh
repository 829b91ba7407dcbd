#!/bin/sh
# examples/python/dlpipe.py: sources and a C fetch from Python, whose batches numpy takes over
# without a copy. The layout of each struct that it reads out of the headers is that of the
# compiler. 77 where there is no numpy.
dir=build/python
. tests/rig/shell_rig
fresh_dir

python=''
for p in /usr/bin/python3 python3; do
    "$p" -c 'import numpy; numpy.from_dlpack' >/dev/null 2>&1 && python=$p && break
done
[ -n "$python" ] || skip 'python3-numpy (1.23 or later) is not installed'

shared lib >$dir/said 2>&1 || {
    cat $dir/said
    exit 1
}
mkdir $dir/build && ln -s ../../plain/so $dir/build/so
cp dlpipe.h $dir
DLPIPE_HOME=$PWD/$dir
PYTHONPATH=examples/python
PYTHONDONTWRITEBYTECODE=1
export DLPIPE_HOME PYTHONPATH PYTHONDONTWRITEBYTECODE

# Structs: size, and the place of each member.
"$python" - >$dir/layout.c <<'END' || fail 'dlpipe.py cannot be imported'
import dlpipe
wanted = {"dlp_loader_desc", "dlp_tokens_desc", "dlp_lines_desc", "dlp_tar_desc", "dlp_files_desc",
          "dlp_arrays_desc", "dlp_field", "dlp_error", "dlp_batch", "dlp_tensor", "dlp_source"}
assert wanted <= set(dlpipe.structs), wanted - set(dlpipe.structs)
print('#include "../../dlpipe.h"\n#include <stddef.h>')
for name, s in sorted(dlpipe.structs.items()):
    print('_Static_assert(sizeof(%s) == %d, "%s");' % (name, dlpipe.c.sizeof(s), name))
    for member, _ in s._fields_:
        print('_Static_assert(offsetof(%s, %s) == %d, "%s.%s");'
              % (name, member, getattr(s, member).offset, name, member))
END
[ "$(grep -c sizeof $dir/layout.c)" -gt 50 ] || fail 'too few structs are known'
${CC:-cc} -std=c11 -fsyntax-only $dir/layout.c || fail 'a layout is not that of the compiler'

cat >$dir/fetch.c <<'END'
#include "../../dlpipe.h"
int fetch(void *user, dlp_item *item);
int fetch(void *user, dlp_item *item) {
    float *x = item->data[0];
    for (int i = 0; i < 3; i++) x[i] = (float)item->index * ((const float *)user)[i];
    item->length[1] = item->index % 4;
    for (uint64_t i = 0; i < item->length[1]; i++) ((uint8_t *)item->data[1])[i] = (uint8_t)(i + 1);
    return item->index == 5000 ? dlp_fail(item->call, 0, "item %d is bad", 5000) : 0;
}
END
${CC:-cc} -std=c11 -shared -fPIC -o $dir/fetch.so $dir/fetch.c || exit 1

cat >$dir/take.py <<'END'
import ctypes, io, json, os, sys, tarfile
import numpy as np
import dlpipe

os.chdir(sys.argv[1])
rng = np.random.default_rng(1)

# A fetch in C.
mine = ctypes.CDLL("./fetch.so")
scale = (ctypes.c_float * 3)(1, 10, 100)
fields = [dlpipe.field("x", "f32", 3), dlpipe.field("ragged", "u8", 4, ragged=True)]
def loader(n, **values):
    return dlpipe.Loader(dataset={"n_items": n, "fields": fields, "fetch": mine.fetch,
                                  "user": ctypes.addressof(scale)}, num_workers=2, **values)
seen = []
with loader(1000, batch_size=64, shuffle=True, epochs=2) as pipe:
    for batch in pipe:
        x, index = batch["x"], batch.index
        assert x.dtype == np.float32 and x.shape == (batch.count, 3) and not x.flags.owndata
        assert (x == index[:, None] * np.array([1, 10, 100], np.float32)).all()
        assert (batch.lengths("ragged") == index % 4).all()
        assert (batch["ragged"][:, 0] == (index % 4 > 0)).all()
        seen += index.tolist()
assert sorted(seen) == sorted(2 * list(range(1000))) and seen[:1000] != seen[1000:]

# An array that is kept holds its batch: with one batch at a time, next says so.
pipe = loader(100, batch_size=10, pipe={"max_held": 1})
kept = next(pipe)["x"]
try:
    next(pipe)
    assert False
except dlpipe.Error as e:
    assert e.code == -6, e
del kept
assert next(pipe)["x"][0, 0] == 10
x = next(pipe)["x"]
capsule = pipe._batch.tensor("x").__dlpack__()  # that nobody takes
del capsule
pipe.close()
assert x[0, 0] == 20 and pipe.at is None  # it outlives the pipe

# What goes wrong: a callback, a desc.
try:
    for batch in loader(6000, batch_size=100):
        pass
    assert False
except dlpipe.Error as e:
    assert e.code == -7 and "item 5000 is bad" in str(e), e
try:
    dlpipe.Source("lines", path="nowhere.txt")
    assert False
except dlpipe.Error as e:
    assert e.code == -13 and "nowhere.txt" in str(e), e

# Wrong arguments: the error names the argument, and says what it must be.
def refused(words, call, *positions, **values):
    try:
        call(*positions, **values)
    except (TypeError, ValueError) as e:
        assert all(w in str(e) for w in words.split("|")), e
    else:
        assert False, words
refused("has no field nonsense|dlp_loader_desc", dlpipe.Loader, nonsense=1)
refused("is it batch_size?", dlpipe.Loader, batchsize=1)
refused("has no field sampler.sead; is it seed?", dlpipe.Loader, sampler={"sead": 1})
refused("batch_size is '64', must be a number", dlpipe.Loader, batch_size="64")
refused("sampler is 3, must be a dict of fields of dlp_sampler_desc", dlpipe.Loader, sampler=3)
refused("pipe is 3, must be a dict", dlpipe.Loader, pipe=3)
refused("dataset.fetch is <function|a C function", dlpipe.Loader, dataset={"fetch": refused})
refused("dataset.fields is [{|dlpipe.structs[", dlpipe.Loader, dataset={"fields": [{"name": "x"}]})
refused("path is 3, must be a text", dlpipe.Source, "lines", path=3)
refused("kind is 'token', must be tokens, files", dlpipe.Source, "token")
refused("dtype is 'q8', must be u, i, f", dlpipe.field, "x", "q8")
refused("shape is ('3',), must be numbers", dlpipe.field, "x", "u8", "3")
refused("name is 3, must be a text", dlpipe.field, 3, "u8")
pipe = loader(100, batch_size=10)
refused("name is 'y', must be one of x, ragged", next(pipe).tensor, "y")
refused("what is 9, must be INDEX", next(pipe).rows, 9)
refused("name is None, must be one of x, ragged", next(pipe).rows, dlpipe.LENGTHS)
pipe.close()

# Arrays and tokens, beside what numpy reads.
a = rng.normal(size=(500, 3, 4)).astype(np.float32)
np.save("a.npy", a)
column = dlpipe.structs["dlp_array_column"](name=b"a", path=b"a.npy")
arrays = dlpipe.Source("arrays", columns=[column])
got = {}
for batch in dlpipe.Loader(source=arrays, batch_size=32, num_workers=2, shuffle=True):
    got.update(zip(batch.index.tolist(), batch["a"].copy()))
assert len(got) == 500 and all((got[i] == a[i]).all() for i in range(500))
tokens = rng.integers(0, 50000, 10001).astype(np.uint16)
tokens.tofile("t.bin")
source = dlpipe.Source("tokens", pattern="t.bin", length=100, insist=True)
rows = np.concatenate([b["tokens"].copy() for b in dlpipe.Loader(source=source, batch_size=16)])
assert (rows == np.stack([tokens[i * 100:i * 100 + 101] for i in range(100)])).all()

# Lines: raw bytes, which Python parses.
texts = [json.dumps({"i": i, "text": "x" * (i % 50)}) for i in range(777)]
with open("l.jsonl", "w") as f:
    f.write("\n".join(texts))
lines = dlpipe.Source("lines", path="l.jsonl")
n = 0
for batch in dlpipe.Loader(source=lines, batch_size=50, num_workers=2, shuffle=True,
                           sampler={"seed": 4}):
    for i, row, length in zip(batch.index, batch["line"], batch.lengths("line")):
        assert bytes(row[:length]).decode() == texts[i] and json.loads(texts[i])["i"] == i
        n += 1
assert n == 777

# Tar shards, which Python's tarfile writes.
want = []
paths = []
for s in range(3):
    paths.append("s%d.tar" % s)
    with tarfile.open(paths[-1], "w", format=(tarfile.PAX_FORMAT, tarfile.GNU_FORMAT,
                                              tarfile.USTAR_FORMAT)[s]) as t:
        for i in range(20 + s):
            image = rng.integers(0, 256, (4, 4)).astype(np.uint8)
            for ext, data in (("img", image.tobytes()), ("cls", np.int32(i * s).tobytes())):
                info = tarfile.TarInfo("d%s/%03d.%s" % ("ö" * (40 * s if s < 2 else 0), i, ext))
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
            want.append((image, i * s))
tar = dlpipe.Source("tar", paths=paths,
                    fields=[dlpipe.field("img", "u8", 4, 4), dlpipe.field("cls", "i32")])
n = 0
for batch in dlpipe.Loader(source=tar, batch_size=7, num_workers=2, shuffle=True):
    for i, image, label in zip(batch.index, batch["img"], batch["cls"]):
        assert (image == want[i][0]).all() and label == want[i][1]
        n += 1
assert n == len(want) == 63
for s in (tar, lines, source, arrays):
    s.close()
    assert not s.at
print("numpy", np.__version__, "took", n, "samples and more over;", len(dlpipe.structs), "structs")
END
timeout 100 "$python" $dir/take.py $dir || fail "take.py: exit code $?"
[ $wrong -eq 0 ]
