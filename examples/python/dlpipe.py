"""dlpipe from Python: one file, by ctypes. It needs build/so/libdlpipe.so (make lib) and dlpipe.h.

    import dlpipe
    source = dlpipe.Source("tokens", pattern="shards/*.bin", length=1024)
    for batch in dlpipe.Loader(source=source, batch_size=64, num_workers=2, shuffle=True):
        x = batch["tokens"]  # an array of numpy, without a copy
        y = torch.from_dlpack(batch.tensor("tokens"))  # or one of another DLPack library

Source("tokens") is dlp_tokens_open, and so for files, arrays, lines and tar. Arguments of Source
and Loader are fields of dlp_tokens_desc and dlp_loader_desc, as dlpipe.h explains them:

    text          bytes that end with 0; a list of texts, of numbers, or of dicts: an array. The
                  field n_... that counts it is set, too
    dict          a struct in the struct: Loader(..., pipe={"max_held": 4}, cache={"bytes": 9})
    bytes         a struct as it lies in memory: a state of Pipe.state for pipe={"resume": state}
    DLP_...       a number that dlpipe.h names: sampler={"order": dlpipe.DLP_ORDER_WEIGHTED}
    field(...)    a dlp_field; a list of these: fields and n_fields
    a C function  of a library that ctypes has loaded: a callback, such as a fetch

    lib = ctypes.CDLL("./mine.so")
    loader = Loader(dataset={"n_items": 1000, "fields": [field("x", "f32", 3)], "fetch": lib.fetch},
           batch_size=64, num_workers=4)

Pipe opens a table of nodes; the rest are fields of dlp_pipe_desc. The key that is no other field of
dlp_node is the verb:

    Pipe([{"name": "items", "list": {"n_items": 1000, "shuffle": True}},
          {"name": "read", "fetch": {"fetch": lib.fetch, "fields": [field("x", "f32", 3)]}},
          {"name": "batch", "batch": {"batch_size": 64}}], seed=1, epochs=2)

len(pipe) is the batches of an epoch, pipe.state() the 248 bytes to go on from, pipe.explain() says
what is slow.

A batch goes back to the pipe when the loop asks for the next one and its last array is gone. An
array that is kept longer holds its batch: then give pipe={"max_held": N}, which is 2 here by
default. Callbacks run in threads of C: a callback in Python would wait for the interpreter's lock.

The layout of structs is read out of the headers, so it is that of the library next to them.
DLPIPE_HOME says where headers and library are; else they are looked for in the folder of this file,
in the three folders above it, as "make install" has them, and in /usr/local and /usr.
"""
import ctypes as c
import difflib
import glob
import os
import re

END, EPOCH_END, STOPPED = 4099, 4100, 4101
INDEX, VALID, LENGTHS, OFFSETS, LIST, NUMBER = 1, 2, 3, 4, 5, 6


class Error(Exception):
    """What dlp_error_format says; code is a DLP_ERR_*."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def _wrong(name, value, must, kind=TypeError):
    """The error of an argument that cannot be."""
    return kind("%s is %.80r, must be %s" % (name, value, must))


def _find(*names):
    roots = [os.environ.get("DLPIPE_HOME"), os.path.dirname(os.path.abspath(__file__))]
    for _ in range(3):  # of the repository, or of lib/python3.11/site-packages
        roots.append(os.path.dirname(roots[-1]))
    for root in filter(None, roots + ["/usr/local", "/usr"]):
        for name in names:
            found = glob.glob(os.path.join(glob.escape(root), name))
            if found:
                return found[0]
    raise ImportError("there is no %s: make lib, or set DLPIPE_HOME" % " or ".join(names))


# ---- structs, out of the headers ----------------------------------------------------------------

_NUMBERS = {"char": c.c_char, "double": c.c_double, "float": c.c_float, "int": c.c_int,
            "size_t": c.c_size_t, "dlp_dtype": c.c_uint32, "dlp_stage": c.c_int32}
for _bits in (8, 16, 32, 64):
    _NUMBERS["int%d_t" % _bits] = getattr(c, "c_int%d" % _bits)
    _NUMBERS["uint%d_t" % _bits] = getattr(c, "c_uint%d" % _bits)


def _bare(text):
    """Declarations alone, without comments and lines of the preprocessor."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S).replace("\\\n", " ")
    return re.sub(r"^\s*#[^\n]*", "", text, flags=re.M)


class _Structs(dict):
    """Classes of ctypes by the names of typedefs: those whose members are all known."""

    def __init__(self, texts):
        super().__init__()
        self.numbers = {}  # DLP_...: a number
        self.points = {}   # (struct, member): what it points to, such as "dlp_field"
        for text in texts:
            self.count(text)
            for body, name in re.findall(r"typedef struct \w+ \{(.*?)\n\} (dlp_\w+);", _bare(text),
                                         flags=re.S):
                self.add(name, body)
            for base, name in re.findall(r"typedef (dlp_\w+_desc) (dlp_\w+);", _bare(text)):
                self[name] = self[base]

    def count(self, text):
        """Find the constants: of #define and enum, and the rows of lists."""
        for name, number in re.findall(r"#define (DLP_\w+) \(?(-?\d+)\b", text):
            self.numbers[name] = int(number)
        for name, code, bits in re.findall(r"#define (DLP_\w+) DLP_DTYPE\((\d+), (\d+)", text):
            self.numbers[name] = int(code) << 16 | int(bits)
        for name, one, by in re.findall(r"#define (DLP_\w+) \(UINT64_C\((\d+)\) << (\d+)", text):
            self.numbers[name] = int(one) << int(by)
        for rows, prefix in (("X", "DLP_"), ("ORDER", "DLP_ORDER_"), ("KIND", "DLP_STAGE_")):
            for name, value in re.findall(r"\n    %s\((\w+), (-?\d+)" % rows, text):
                self.numbers[prefix + name] = int(value)
        for body in re.findall(r"enum \{(.*?)\}", _bare(text), flags=re.S):
            at = -1
            for name, value in re.findall(r"(DLP_\w+)(?: = (-?\d+))?\s*(?:,|$)", body):
                at = self.numbers[name] = int(value) if value else at + 1

    def add(self, name, body):
        fields, unions = [], []
        try:  # a union without a name has no brace in it
            for i, part in enumerate(re.split(r"union \{(.*?)\};", body, flags=re.S)):
                members = [m for one in self.split(part) for m in self.members(name, one)]
                if i % 2 == 1:
                    union = type(name + "_union", (c.Union,), {"_fields_": members})
                    unions.append("union%d" % i)
                    members = [(unions[-1], union)]
                fields += members
        except KeyError:
            return  # nobody needs it from here
        self[name] = type(name, (c.Structure,), {"_anonymous_": unions, "_fields_": fields})

    @staticmethod
    def split(body):
        if "{" in body:
            raise KeyError("a struct inside")
        return filter(None, (" ".join(part.split()) for part in body.split(";")))

    def members(self, struct, part):
        called = re.search(r"\(\*(\w+)\)\(", part)
        if called:
            return [(called.group(1), c.c_void_p)]
        base, rest = re.match(r"(?:const )?(?:struct )?(\w+)\s*(.*)", part).groups()
        return [self.member(struct, base, one.strip()) for one in rest.split(",")]

    def member(self, struct, base, text):
        parts = re.fullmatch(r"((?:\* ?(?:const ?)?|const ?)*)(\w+)(?:\[(\w+)\])?", text)
        if parts is None:
            raise KeyError(text)
        stars, name, many = parts.groups()
        if "*" in stars or base.endswith("_fn"):
            self.points[struct, name] = base
            kind = c.c_char_p if base == "char" and stars.count("*") == 1 else c.c_void_p
        else:
            kind = _NUMBERS[base] if base in _NUMBERS else self[base]
        if many:
            kind = kind * (int(many) if many.isdigit() else self.numbers[many])
        return name, kind


def _read(name):
    """The declarations of a header: a seventh of it, which is read in a hundredth of the time."""
    with open(_find(name, "include/" + name), encoding="utf-8") as f:
        return f.read().partition("\n   IMPLEMENTATION")[0]


_header = _read("dlpipe.h")
structs = _Structs([_header])
try:
    _library = _find("build/so/libdlpipe.so.*", "lib/libdlpipe.so")
except ImportError:
    _library = "libdlpipe.so.0"  # where the loader finds it
try:
    lib = c.CDLL(_library, mode=c.RTLD_GLOBAL)  # so that a fetch can call dlp_fail
except OSError as e:
    raise ImportError("%s; make lib, or set DLPIPE_HOME to where it was made" % e) from None
for _needs in re.findall(r"#define DLPI_NEEDS (\w+)", _header):  # a hash of the structs is in it
    if not hasattr(lib, _needs):
        raise ImportError("%s was made with another dlpipe.h than %s: make lib again" %
                          (_library, _find("dlpipe.h", "include/dlpipe.h")))



def __getattr__(name):
    if name in structs.numbers:
        return structs.numbers[name]
    raise AttributeError("dlpipe.h has no %s" % name)


_DTYPES = {"u": 1, "i": 0, "f": 2, "bf": 4, "bool": 6}


def dtype(name):
    """A dlp_dtype: "u8", "i32", "f32", "bf16", "bool8"."""
    parts = re.fullmatch(r"([a-z]+)(\d+)", str(name))
    if parts is None or parts[1] not in _DTYPES:
        raise _wrong("dtype", name, "u, i, f, bf or bool, and bits: \"f32\"", ValueError)
    return _DTYPES[parts[1]] << 16 | int(parts[2])


def field(name, kind, *shape, ragged=False):
    """A dlp_field. ragged: the first number of shape is the most rows of an item."""
    if not isinstance(name, str):
        raise _wrong("name", name, "a text")
    f = structs["dlp_field"](name=name.encode(), dtype=dtype(kind), ndim=len(shape), ragged=ragged)
    if len(shape) > len(f.shape) or not all(isinstance(n, int) for n in shape):
        raise _wrong("shape", shape, "numbers, at most %d of them" % len(f.shape))
    f.shape[:len(shape)] = shape
    return f


# ---- descs --------------------------------------------------------------------------------------

def _array(values, of, keep, name):
    """A C array, and what keeps it alive. of: the type in dlpipe.h that its elements have."""
    if isinstance(values[0], (str, bytes, os.PathLike)):
        values = [os.fsencode(v) for v in values]
        if name.endswith("from"):  # the one list that has no n_...
            values.append(None)
        a = (c.c_char_p * len(values))(*values)
    elif isinstance(values[0], dict) and of in structs:
        a = (structs[of] * len(values))()
        for i, v in enumerate(values):
            fill(a[i], v, keep, "%s[%d]." % (name, i))
    elif isinstance(values[0], c.Structure):
        a = (type(values[0]) * len(values))(*values)
    else:
        kind = _NUMBERS.get(of, c.c_uint64)
        values = [_number(kind, v, "%s[%d]" % (name, i)) for i, v in enumerate(values)]
        a = (kind * len(values))(*values)
    keep.append((a, values))
    return c.cast(a, c.c_void_p).value


def _number(kind, value, name):
    """A number that fits its field: ctypes would cut it."""
    if isinstance(value, int) and kind not in (c.c_float, c.c_double):
        value = int(value)
        if kind(value).value != value:
            low = 0 if kind(-1).value > 0 else -1 << 8 * c.sizeof(kind) - 1
            raise _wrong(name, value, "from %d to %d" % (low, low + (1 << 8 * c.sizeof(kind)) - 1),
                         ValueError)
    return value


def _must(kind):
    """What a field of this type takes, for errors."""
    if issubclass(kind, c.Structure):
        return "a dict of fields of %s" % kind.__name__
    if kind is c.c_char_p:
        return "a text, or None"
    if kind is c.c_void_p:
        return ("a list of texts, numbers or dlpipe.structs[...](...), a C function, a Source, an "
                "address or None")
    return "a number"


def _value(kind, value, of, keep, name):
    """What a field of this type is set to. of: what it points to, if it is a pointer."""
    if isinstance(value, (list, tuple)):
        return _array(value, of, keep, name) if value else None
    if isinstance(value, dict) and of in structs:
        value = fill(structs[of](), value, keep, name + ".")
    if isinstance(value, (bytes, bytearray)) and of in structs:
        if len(value) != c.sizeof(structs[of]):
            raise ValueError("%s has %d bytes, must have %d" % (name, len(value),
                                                                c.sizeof(structs[of])))
        value = structs[of].from_buffer_copy(value)
    if isinstance(value, Source):
        keep.append(value)
        return value.at.value
    if isinstance(value, c.Structure):
        keep.append(value)
        return c.addressof(value)
    if kind is c.c_char_p and value is not None:
        return os.fsencode(value)
    if kind is c.c_void_p and hasattr(value, "argtypes"):  # a function
        keep.append(value)
        return c.cast(value, c.c_void_p).value
    return value if issubclass(kind, c.Structure) or kind in (c.c_void_p, c.c_char_p) else \
        _number(kind, value, name)


def _kinds(struct):
    """The types of the members of a struct, and of its unions without a name."""
    kinds = {}
    for name, kind in struct._fields_:
        kinds.update(_kinds(kind) if name in getattr(struct, "_anonymous_", ()) else {name: kind})
    return kinds


def fill(desc, values, keep, above=""):
    """Set fields of a desc. What C borrows is put into keep, which must live as long. above: what
    errors put in front of a field's name, such as "sampler."."""
    kinds = _kinds(type(desc))
    for name, value in values.items():
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, 1)
            raise TypeError("%s has no field %s%s; %s" % (
                type(desc).__name__, above, name, "is it %s?" % near[0] if near else
                "dlpipe.h lists its fields"))
        if isinstance(value, dict) and issubclass(kinds[name], c.Structure):
            fill(getattr(desc, name), value, keep, above + name + ".")
            continue
        if isinstance(value, (list, tuple)) and "n_" + name in kinds:
            setattr(desc, "n_" + name, len(value))
        of = structs.points.get((type(desc).__name__, name))
        try:
            setattr(desc, name, _value(kinds[name], value, of, keep, above + name))
        except (TypeError, c.ArgumentError) as e:
            if e.args[0].startswith(("dlp_", above + name)):
                raise
            raise _wrong(above + name, value, _must(kinds[name])) from None
    return desc


def _check(code, err):
    if code != 0:
        text = c.create_string_buffer(1024)
        lib.dlp_error_format(c.byref(err), text, c.c_size_t(len(text)))
        raise Error(code, text.value.decode(errors="replace"))


class Source:
    """What has the items: Source("lines", path="a.jsonl"), a dlp_lines_open."""

    def __init__(self, kind, **values):
        err = structs["dlp_error"]()
        self._keep = []
        self.at = c.c_void_p()
        if "dlp_%s_desc" % kind not in structs or not hasattr(lib, "dlp_%s_open" % kind):
            raise _wrong("kind", kind, "tokens, files, arrays, lines or tar", ValueError)
        desc = fill(structs["dlp_%s_desc" % kind](), values, self._keep)
        _check(getattr(lib, "dlp_%s_open" % kind)(c.byref(self.at), c.byref(desc), c.byref(err)),
               err)

    def close(self):
        """Free the source. Close the pipes of it first."""
        if self.at and lib.dlp_source_close(self.at) == 0:
            self.at = c.c_void_p()

    def __del__(self):
        if hasattr(self, "at"):
            self.close()


# ---- batches ------------------------------------------------------------------------------------

class _Managed(c.Structure):  # DLManagedTensor
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32),
                ("ndim", c.c_int32), ("dtype", c.c_uint32), ("shape", c.c_void_p),
                ("strides", c.c_void_p), ("byte_offset", c.c_uint64), ("manager_ctx", c.c_void_p),
                ("deleter", c.CFUNCTYPE(None, c.c_void_p))]


_python = c.pythonapi
_python.PyCapsule_New.restype = c.py_object
_python.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
_python.PyCapsule_IsValid.argtypes = [c.c_void_p, c.c_char_p]
_python.PyCapsule_GetPointer.restype = c.c_void_p
_python.PyCapsule_GetPointer.argtypes = [c.c_void_p, c.c_char_p]


@c.PYFUNCTYPE(None, c.c_void_p)
def _capsule_end(capsule):  # a capsule that nobody took over has the name of before
    if _python.PyCapsule_IsValid(capsule, b"dltensor"):
        at = _python.PyCapsule_GetPointer(capsule, b"dltensor")
        _Managed.from_address(at).deleter(at)


class Tensor:
    """What from_dlpack of numpy, PyTorch or JAX asks for. Each of these calls holds the batch."""

    def __init__(self, batch, number, rows=0):
        self._batch, self._number, self._rows = batch, number, rows

    def __dlpack__(self, stream=None, **_):
        b, at, err = self._batch, c.c_void_p(), structs["dlp_error"]()
        if b.pipe.at is None or b.at is None:
            raise Error(-5, "the batch was given back")
        if self._rows:
            code = lib.dlp_batch_dlpack_rows(b.pipe.at, b.at, self._rows, self._number, c.byref(at),
                                             c.byref(err))
        else:
            code = lib.dlp_batch_dlpack(b.pipe.at, b.at, self._number, c.byref(at))
            err.code = code
        _check(code, err)
        return _python.PyCapsule_New(at, b"dltensor", c.cast(_capsule_end, c.c_void_p))

    def __dlpack_device__(self):
        return (1, 0)


class Batch:
    """A batch that the pipe lends, until the loop asks for the next one."""

    def __init__(self, pipe, at):
        self.pipe, self.at = pipe, at
        b = structs["dlp_batch"].from_address(at.value)
        self.count, self.epoch, self.sequence = b.count, b.epoch, b.sequence
        tensors = (structs["dlp_tensor"] * b.n_fields).from_address(b.fields)
        self.names = [t.name.decode() for t in tensors]

    def _number(self, name):
        if name not in self.names:
            raise _wrong("name", name, "one of " + ", ".join(self.names), ValueError)
        return self.names.index(name)

    def tensor(self, name):
        """A field, for from_dlpack."""
        return Tensor(self, self._number(name))

    def rows(self, what, name=None):
        """INDEX, VALID, LIST, NUMBER; or LENGTHS, OFFSETS of a field, for from_dlpack."""
        if what not in (INDEX, VALID, LENGTHS, OFFSETS, LIST, NUMBER):
            raise _wrong("what", what, "INDEX, VALID, LENGTHS, OFFSETS, LIST or NUMBER", ValueError)
        return Tensor(self, self._number(name) if what in (LENGTHS, OFFSETS) else 0, what)

    def __getitem__(self, name):
        """A field as an array of numpy, without a copy."""
        import numpy
        return numpy.from_dlpack(self.tensor(name))

    def lengths(self, name):
        """Lengths of a ragged field as an array of numpy, without a copy."""
        import numpy
        return numpy.from_dlpack(self.rows(LENGTHS, name))

    @property
    def index(self):
        """The dataset index of each row, as an array of numpy, without a copy."""
        import numpy
        return numpy.from_dlpack(self.rows(INDEX))

    @property
    def list(self):
        """With trace_rows: the list of the table, or dataset, of each row. Likewise an array."""
        import numpy
        return numpy.from_dlpack(self.rows(LIST))

    @property
    def number(self):
        """With trace_rows: the number of each row's item among those of its input. Likewise."""
        import numpy
        return numpy.from_dlpack(self.rows(NUMBER))


class Pipe:
    """A pipe of a table: Pipe([{...}, ...], seed=...), a dlp_pipe_open. Loop over it. It closes
    itself behind the last batch; one that is left before is closed by close, or by "with"."""

    def __init__(self, nodes, **values):
        self._begin()
        rows = (structs["dlp_node"] * len(nodes))()
        rest = {"name", "from", "verb", "workers", "queue"}
        for i, (row, node) in enumerate(zip(rows, nodes)):
            verbs = [k for k in node if k not in rest]
            if "verb" not in node and (len(verbs) != 1 or
                                       "DLP_" + verbs[0].upper() not in structs.numbers):
                raise TypeError("nodes[%d] has %s, must have one verb, such as fetch" %
                                (i, ", ".join(verbs) or "no verb"))
            if "verb" not in node:
                row.verb = structs.numbers["DLP_" + verbs[0].upper()]
            known = _kinds(type(row))
            fill(row, {k: v for k, v in node.items() if k in known or v not in ({}, True)},
                 self._keep, "nodes[%d]." % i)
        desc = fill(structs["dlp_pipe_desc"](), {"max_held": 2, **values}, self._keep)
        self._open(lib.dlp_pipe_open, rows, c.c_uint32(len(rows)), c.byref(desc))

    def _begin(self):
        self._keep, self.at, self._batch, self._said = [], None, None, None

    def _open(self, call, *desc):
        at, err = c.c_void_p(), structs["dlp_error"]()
        _check(call(c.byref(at), *desc, c.byref(err)), err)
        self.at = at
        lib.dlp_pipe_batches_per_epoch.restype = c.c_int64
        self._batches = lib.dlp_pipe_batches_per_epoch(at)

    def __len__(self):
        """Batches of an epoch."""
        if self._batches < 0:
            raise TypeError("nobody knows the number of batches in an epoch of this pipe")
        return self._batches

    def _running(self):
        if self.at is None:
            raise Error(-5, "the pipe is closed; behind its last batch it closes itself")
        return self.at

    def state(self, batch=None):
        """The bytes from which a pipe goes on behind this batch, or behind all that were given:
        pipe={"resume": state} of a Loader, resume=state of a Pipe."""
        state = structs["dlp_state"]()
        err = structs["dlp_error"](code=lib.dlp_pipe_state(self._running(), batch and batch.at,
                                                           c.byref(state)))
        _check(err.code, err)
        return bytes(state)

    def explain(self):
        """What dlp_pipe_explain says: the stage that is slow, and what to change. Behind the last
        batch it is what the pipe said there."""
        if self.at is None and self._said is not None:
            return self._said
        text = c.create_string_buffer(1 << 16)
        n = lib.dlp_pipe_explain(self._running(), text, c.c_size_t(len(text)))
        _check(min(n, 0), structs["dlp_error"](code=min(n, 0)))
        return text.value.decode(errors="replace")

    def __iter__(self):
        return self

    def __next__(self):
        at = c.c_void_p()
        if self.at is None:
            raise StopIteration
        self._give_back()
        code = lib.dlp_pipe_next(self.at, c.byref(at))
        if code == END:
            self._said = self.explain()
            self.close()
        if code in (END, EPOCH_END, STOPPED):
            raise StopIteration
        if code != 0:
            lib.dlp_pipe_error.restype = c.POINTER(structs["dlp_error"])
            err = lib.dlp_pipe_error(self.at).contents
            if err.code == 0:  # next was called wrongly: the pipe is well
                lib.dlp_code_text.restype = c.c_char_p
                raise Error(code, lib.dlp_code_text(code).decode())
            _check(code, err)
        self._batch = Batch(self, at)
        return self._batch

    def _give_back(self):
        if self._batch is not None:
            lib.dlp_pipe_release(self.at, self._batch.at)
            self._batch.at = None
            self._batch = None

    def close(self):
        """Stop the workers, and free the pipe. Arrays of its batches outlive it."""
        if self.at is not None:
            self._give_back()
            lib.dlp_pipe_close(self.at)
            self.at = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if hasattr(self, "at"):
            self.close()


class Loader(Pipe):
    """A pipe of a loader: Loader(source=..., batch_size=..., ...), a dlp_loader_open."""

    def __init__(self, **values):
        self._begin()
        pipe = values.get("pipe", {})
        if isinstance(pipe, dict):
            values["pipe"] = {"max_held": 2, **pipe}
        desc = fill(structs["dlp_loader_desc"](), values, self._keep)
        self._open(lib.dlp_loader_open, c.byref(desc))
