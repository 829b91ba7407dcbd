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

# An import takes a tenth of a second of the processor. The least of five is compared.
for _ in 1 2 3 4 5; do
    "$python" -c 'import time
begin = time.process_time()
import dlpipe
print(int(1e3 * (time.process_time() - begin)))' || exit 1
done | sort -n >$dir/said
[ "$(head -n 1 $dir/said)" -lt 200 ] || fail "an import takes $(head -n 1 $dir/said) ms"

# A header with other structs than the library's.
sed 's/^\(#define DLPI_NEEDS .*_\)[0-9a-f]*$/\10123abcd/' dlpipe.h >$dir/dlpipe.h
"$python" -c 'import dlpipe' 2>$dir/said && fail 'took a header of other structs'
grep -q 'ImportError: .*was made with another dlpipe.h than .*make lib again' $dir/said ||
    fail "a header of other structs: $(cat $dir/said)"
cp dlpipe.h $dir

# A library that cannot be loaded.
mkdir -p $dir/none/build/so && cp dlpipe.h $dir/none && : >$dir/none/build/so/libdlpipe.so.0
DLPIPE_HOME=$PWD/$dir/none "$python" -c 'import dlpipe' 2>$dir/said && fail 'took an empty library'
grep -q 'ImportError: .*libdlpipe.*; make lib, or set DLPIPE_HOME' $dir/said ||
    fail "a library that cannot be loaded: $(cat $dir/said)"

# Structs: size, and the place of each member.
"$python" - >$dir/layout.c <<'END' || fail 'dlpipe.py cannot be imported'
import dlpipe
wanted = {"dlp_loader_desc", "dlp_tokens_desc", "dlp_lines_desc", "dlp_tar_desc", "dlp_files_desc",
          "dlp_arrays_desc", "dlp_field", "dlp_error", "dlp_batch", "dlp_tensor", "dlp_source"}
assert wanted <= set(dlpipe.structs), wanted - set(dlpipe.structs)
print('#include "../../dlpipe.h"\n#include <stddef.h>')
for name, s in sorted(dlpipe.structs.items()):
    print('_Static_assert(sizeof(%s) == %d, "%s");' % (name, dlpipe.c.sizeof(s), name))
    for member in dlpipe._kinds(s):
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
def loader(n, dataset_open_end=0, **values):
    return dlpipe.Loader(dataset={"n_items": n, "fields": fields, "fetch": mine.fetch,
                                  "user": ctypes.addressof(scale), "open_end": dataset_open_end},
                         **{"num_workers": 2, **values})
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
refused("dlp_field has no field dataset.fields[0].nam; is it name?", dlpipe.Loader,
        dataset={"fields": [{"nam": "x"}]})
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

refused("batch_size is 4294967296, must be from 0 to 4294967295", loader, 9,
        batch_size=1 << 32)
refused("epochs is -9223372036854775809, must be from -9", loader, 9, epochs=-(1 << 63) - 1)
refused("sampler.weights[1] is -1, must be from 0 to 18446744073709551615", loader, 9,
        sampler={"weights": [1, -1]})
refused("pipe.resume has 100 bytes, must have 248", loader, 9, pipe={"resume": bytes(100)})
refused("nodes[0] has no verb", dlpipe.Pipe, [{"name": "a"}])
refused("nodes[1] has read, must have one verb", dlpipe.Pipe,
        [{"name": "a", "list": {}}, {"name": "b", "read": {}}])
refused("dlp_node_list has no field nodes[0].list.items; is it n_items?", dlpipe.Pipe,
        [{"name": "a", "list": {"items": 9}}])

# A table of nodes; a state, from which another pipe goes on; len; explain.
def table(n=1000, **desc):
    return dlpipe.Pipe([{"name": "items", "list": {"n_items": n, "shuffle": True}},
                        {"name": "read", "fetch": {"fetch": mine.fetch, "fields": fields,
                                                   "user": ctypes.addressof(scale)},
                         "workers": {"num_workers": 2}},
                        {"name": "batch", "batch": {"batch_size": 64}}], seed=5, **desc)
pipe = table()
assert len(pipe) == 16
all_rows = [b.index.tolist() for b in pipe]
assert "Measured: " in pipe.explain()  # of the whole run, behind its last batch
assert len(all_rows) == 16 and sorted(sum(all_rows, [])) == list(range(1000))
pipe = table()
rows = [next(pipe).index.tolist() for _ in range(5)]
state = pipe.state()
assert len(state) == 248 and "Limit" in pipe.explain(), pipe.explain()
batch = next(pipe)
assert pipe.state(batch) != state
pipe.close()
rest = [b.index.tolist() for b in table(resume=state)]
assert rows + rest == all_rows
for call in (pipe.state, pipe.explain):
    try:
        call()
        assert False
    except dlpipe.Error as e:
        assert e.code == -5 and "closed" in str(e), e
try:
    table(999, resume=state)
    assert False
except dlpipe.Error as e:
    assert e.code == -11, e
assert len(loader(100, batch_size=10)) == 10
refused("nobody knows", len, loader(0, batch_size=10, num_workers=1, dataset_open_end=1))

# Two branches, from a list of names; weights, an order by name, a struct behind a pointer.
lists = [{"name": n, "list": {"n_items": 10}} for n in "ab"]
reads = [{"name": "read " + n, "from": [n], "fetch": {"fetch": mine.fetch, "fields": fields,
                                                    "user": ctypes.addressof(scale)}} for n in "ab"]
mix = dlpipe.Pipe([lists[0], reads[0], lists[1], reads[1],
                   {"name": "mix", "from": ["read a", "read b"], "mix": {"weights": [1, 1]}},
                   {"name": "batch", "batch": {"batch_size": 4}}])
assert sorted(sum((b.index.tolist() for b in mix), [])) == sorted(2 * list(range(10)))
assert dlpipe.DLP_ORDER_WEIGHTED == 3 and dlpipe.DLP_LAST_PAD == 2 and dlpipe.DLP_END == 4099
one = dlpipe.Pipe([{"name": "items", "list": {"n_items": 3, "order":
                                            {"order": dlpipe.DLP_ORDER_WEIGHTED,
                                             "weights": [0, 1, 0]}}},
                   {**reads[0], "from": ["items"]}, {"name": "batch", "batch": {"batch_size": 3}}])
assert [b.index.tolist() for b in one] == [[1, 1, 1]]

# Arrays and tokens, beside what numpy reads.
a = rng.normal(size=(500, 3, 4)).astype(np.float32)
np.save("a.npy", a)
arrays = dlpipe.Source("arrays", columns=[{"name": "a", "path": "a.npy"}])
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
# The stub for editors: what it names is there, and it has each field of the descs.
import ast, inspect
stub = ast.parse(open(os.path.join(os.path.dirname(dlpipe.__file__), "dlpipe.pyi")).read())
named = {}
for at in stub.body:
    if isinstance(at, (ast.ClassDef, ast.FunctionDef)):
        named[at.name] = {m.name for m in getattr(at, "body", []) if isinstance(m, ast.FunctionDef)}
    if isinstance(at, ast.AnnAssign):
        named[at.target.id] = set()
    if isinstance(at, ast.Assign) and at.targets[0].id != "structs":
        typed = at.targets[0].id
        keys = {k.value for k in at.value.args[1].keys}
        assert keys == set(dlpipe._kinds(dlpipe.structs[typed])), typed
for name, methods in named.items():
    assert hasattr(dlpipe, name), name
    assert all(hasattr(getattr(dlpipe, name), m) for m in methods), (name, methods)
for name, what in vars(dlpipe).items():
    if inspect.isclass(what) and what.__module__ == "dlpipe" and not name.startswith("_"):
        public = {m for m in vars(what) if not m.startswith("_")}
        assert public <= named[name], (name, public - named[name])

for s in (tar, lines, source, arrays):
    s.close()
    assert not s.at
print("numpy", np.__version__, "took", n, "samples and more over;", len(dlpipe.structs), "structs")
END
timeout 100 "$python" $dir/take.py $dir || fail "take.py: exit code $?"
[ $wrong -eq 0 ]
