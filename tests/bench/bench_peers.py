"""The peers of bench_peers, one a process: bench_peers.py PEER. Each is used as its documentation
says, in its form for bulk where it has one. Commands are those of bench_torch.serve:

open n row_bytes batch workers prefetch
                     the source is made, and whatever lives on is started
rate ms              items a second over so many milliseconds, epochs without an end
check                of one epoch: items, and the weighted sum of their words in two halves
gap borders          median time between the batches around an epoch's border, us
resume               ms from a saved state in the middle of an epoch to the next batch, its bytes
"""
import copy
import io
import itertools
import os
import pickle
import sys
import tarfile
import tempfile
import time
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")

from bench_torch import missing, serve

try:
    import numpy
except ImportError as why:
    missing(why)


def words(n):
    """The source, as bench_peers.c makes it: splitmix64's finalizer of i + the golden ratio."""
    x = numpy.arange(n, dtype=numpy.uint64) + numpy.uint64(0x9e3779b97f4a7c15)
    for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
        x = (x ^ (x >> numpy.uint64(shift))) * numpy.uint64(factor)
    return x ^ (x >> numpy.uint64(31))


class Peer:
    """An epoch is what epoch() iterates over: batches that numpy.asarray understands."""

    def __init__(self):
        self.n = self.batches = None

    def open(self, n, row_bytes, batch, workers, prefetch):
        self.n, self.row_bytes, self.batch = n, row_bytes, batch
        self.workers, self.prefetch = workers, prefetch
        self.data = words(n * row_bytes // 8).view(numpy.uint8).reshape(n, row_bytes)
        self.begin()
        self.batches = self.forever()
        self.rate(300)

    def begin(self):
        pass

    def forever(self):
        while True:
            yield from self.epoch()

    def rate(self, ms):
        items, begin = 0, time.perf_counter()
        until = begin + ms * 1e-3
        for batch in self.batches:
            items += len(batch)
            now = time.perf_counter()
            if now >= until:
                return items / (now - begin)

    def check(self):
        factor = 2 * numpy.arange(self.row_bytes // 8, dtype=numpy.uint64) + numpy.uint64(1)
        items, total = 0, 0
        for batch in self.epoch():
            rows = numpy.ascontiguousarray(self.compared(numpy.asarray(batch)))
            rows = rows.reshape(len(batch), -1)
            items += len(rows)
            total += int((rows.view(numpy.uint64).sum(0, dtype=numpy.uint64) * factor).sum())
        return [items, total >> 32 & 0xffffffff, total & 0xffffffff]

    def compared(self, batch):
        return batch

    def gap(self, borders):
        gaps, last = [], None
        for _ in range(borders + 1):
            is_first = True
            for _batch in self.epoch():
                now = time.perf_counter()
                if is_first and last is not None:
                    gaps.append(now - last)
                is_first, last = False, now
        return 1e6 * sorted(gaps)[len(gaps) // 2]

    def resume(self):
        raise NotImplementedError("no state that it could go on from")


class Numpy(Peer):
    """A loop that indexes an array: no loader, one thread."""
    version = numpy.__version__

    def epoch(self):
        order = numpy.random.permutation(self.n)
        for at in range(0, self.n, self.batch):
            yield self.data[order[at:at + self.batch]]


class Torch(Peer):
    """Items by __getitem__ and the default collate; workers that live on."""
    bulk = False

    def __init__(self):
        super().__init__()
        import torch
        self.torch, self.version = torch, torch.__version__
        torch.set_num_threads(1)

    def dataset(self):
        torch, rows = self.torch, self.torch.from_numpy(self.data)

        class Items(torch.utils.data.Dataset):
            def __len__(self):
                return len(rows)

            def __getitem__(self, i):
                return rows[i]

        class Bulk(Items):
            def __getitems__(self, indices):
                return rows[torch.as_tensor(indices)]

        return Bulk() if self.bulk else Items()

    def loader(self):
        return self.torch.utils.data.DataLoader

    def make(self, persistent):
        how = {"collate_fn": lambda rows: rows} if self.bulk else {}
        return self.loader()(self.dataset(), batch_size=self.batch, shuffle=True,
                             num_workers=self.workers, prefetch_factor=self.prefetch,
                             persistent_workers=persistent, **how)

    def begin(self):
        self.made = self.make(True)

    def epoch(self):
        return iter(self.made)


class TorchBulk(Torch):
    """The same with __getitems__, which gives a whole batch."""
    bulk = True


class Stateful(TorchBulk):
    """torchdata's StatefulDataLoader, with __getitems__."""

    def loader(self):
        from torchdata.stateful_dataloader import StatefulDataLoader
        return StatefulDataLoader

    def resume(self):
        self.made = None
        loader = self.make(False)
        it = iter(loader)
        for _ in range(20):
            next(it)
        state = pickle.dumps(loader.state_dict())
        del it
        begin = time.perf_counter()
        loader = self.make(False)
        loader.load_state_dict(pickle.loads(state))
        next(iter(loader))
        took = time.perf_counter() - begin
        del loader
        self.begin()
        return [1e3 * took, len(state)]


class Nodes(Torch):
    """torchdata.nodes: batches of indices, mapped by threads."""

    def make(self, persistent):
        import torchdata.nodes as nodes
        rows, torch = self.torch.from_numpy(self.data), self.torch
        node = nodes.SamplerWrapper(torch.utils.data.RandomSampler(range(self.n)))
        node = nodes.Batcher(node, batch_size=self.batch, drop_last=False)
        node = nodes.ParallelMapper(node, map_fn=lambda at: rows[torch.as_tensor(at)],
                                    num_workers=self.workers, method="thread", in_order=True)
        return nodes.Loader(nodes.Prefetcher(node, prefetch_factor=self.prefetch))

    def resume(self):
        loader = self.make(False)
        it = iter(loader)
        for _ in range(20):
            next(it)
        state = pickle.dumps(loader.state_dict())
        begin = time.perf_counter()
        loader = self.make(False)
        loader.load_state_dict(pickle.loads(state))
        next(iter(loader))
        return [1e3 * (time.perf_counter() - begin), len(state)]


class Spdl(Peer):
    """A pipeline of threads that index an array by batches of indices; it ends with its source, so
    an epoch is a pipeline where epochs are told apart."""

    def __init__(self):
        super().__init__()
        from importlib.metadata import version
        from spdl.pipeline import PipelineBuilder
        self.builder, self.version = PipelineBuilder, version("spdl")

    def pipeline(self, epochs):
        def indices():
            for _ in epochs:
                order = numpy.random.permutation(self.n)
                for at in range(0, self.n, self.batch):
                    yield order[at:at + self.batch]

        return (self.builder().add_source(indices())
                .pipe(lambda at: self.data[at], concurrency=self.workers)
                .add_sink(self.prefetch).build(num_threads=self.workers))

    def iterate(self, epochs):
        pipeline = self.pipeline(epochs)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=30)

    def epoch(self):
        return self.iterate(range(1))

    def forever(self):
        return self.iterate(itertools.count())


class Grain(Peer):
    """MapDataset: shuffle, batch, read by threads."""

    def __init__(self):
        super().__init__()
        import grain
        self.grain, self.version = grain, grain.__version__

    def make(self, epochs):
        data = self.grain.MapDataset.source(self.data).shuffle(seed=1)
        return data.repeat(epochs).batch(self.batch).to_iter_dataset(
            self.grain.ReadOptions(num_threads=self.workers,
                                   prefetch_buffer_size=max(self.prefetch, self.workers)))

    def begin(self):
        self.once = self.make(1)

    def epoch(self):
        return iter(self.once)

    def forever(self):
        return iter(self.make(None))

    def resume(self):
        it = iter(self.make(1))
        for _ in range(20):
            next(it)
        state = it.get_state()
        size = len(state if isinstance(state, bytes) else pickle.dumps(state))
        begin = time.perf_counter()
        it = iter(self.make(1))
        it.set_state(copy.deepcopy(state))
        next(it)
        return [1e3 * (time.perf_counter() - begin), size]


class TfData(Peer):
    """Indices shuffled and batched, gathered by parallel calls, prefetched."""

    def __init__(self):
        super().__init__()
        import tensorflow
        self.tf, self.version = tensorflow, tensorflow.__version__

    def begin(self):
        self.rows = self.tf.constant(self.data)
        self.once = self.make(1)

    def make(self, epochs):
        rows, tf = self.rows, self.tf
        data = tf.data.Dataset.range(self.n).shuffle(self.n).repeat(epochs).batch(self.batch)
        data = data.map(lambda at: tf.gather(rows, at), num_parallel_calls=self.workers)
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.workers
        return data.prefetch(self.prefetch).with_options(options)

    def epoch(self):
        return iter(self.once)

    def forever(self):
        return iter(self.make(None))

    def resume(self):
        tf, data = self.tf, self.make(1)
        it = iter(data)
        for _ in range(20):
            next(it)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            path = tf.train.Checkpoint(it=it).write(folder + "/state")
            size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
            begin = time.perf_counter()
            it = iter(self.make(1))
            tf.train.Checkpoint(it=it).read(path)
            next(it)
            return [1e3 * (time.perf_counter() - begin), size]


class TfCrop(TfData):
    """JPEG files, PICTURES/NNNNN.jpg: their middle, of which alone is decoded what is kept."""

    def open(self, n, width, height, batch, workers, prefetch):
        self.n, self.row_bytes, self.batch = n, 224 * 224 * 3, batch
        self.workers, self.prefetch = workers, prefetch
        self.at = ((height - 224) // 2, (width - 224) // 2, 224, 224)
        self.once = self.make(1)
        self.batches = iter(self.make(None))
        self.rate(300)

    def compared(self, batch):
        batch = batch.copy()
        batch[:, :, -1] = 0  # upsampled without its neighbour: not what the whole picture has
        return batch

    def make(self, epochs):
        tf, folder = self.tf, os.environ.get("PICTURES", "")

        def load(path):
            return tf.image.decode_and_crop_jpeg(tf.io.read_file(path), self.at, channels=3,
                                                 dct_method="INTEGER_ACCURATE",
                                                 fancy_upscaling=True)

        paths = [f"{folder}/{i:05d}.jpg" for i in range(self.n)]
        data = tf.data.Dataset.from_tensor_slices(paths).shuffle(self.n).repeat(epochs)
        data = data.map(load, num_parallel_calls=self.workers).batch(self.batch)
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.workers
        return data.prefetch(self.prefetch).with_options(options)


class WebDataset(Torch):
    """Tar shards in memory, a buffer of 1,000 shuffled, its own loader with worker processes."""

    def __init__(self):
        super().__init__()
        import webdataset
        self.wds, self.version = webdataset, webdataset.__version__
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm")

    def make(self, persistent):
        shards = 4
        for s in range(shards):
            with tarfile.open(f"{self.folder.name}/{s}.tar", "w") as tar:
                for i in range(s, self.n, shards):
                    info = tarfile.TarInfo(f"{i:08d}.bin")
                    info.size = self.row_bytes
                    tar.addfile(info, io.BytesIO(self.data[i].tobytes()))
        wds = self.wds
        data = wds.WebDataset([f"{self.folder.name}/{s}.tar" for s in range(shards)],
                              shardshuffle=shards).shuffle(1000)
        data = data.to_tuple("bin").map_tuple(lambda b: numpy.frombuffer(b, numpy.uint8))
        return wds.WebLoader(data.batched(self.batch, partial=True), batch_size=None,
                             num_workers=self.workers, prefetch_factor=self.prefetch,
                             persistent_workers=persistent)

    def epoch(self):
        return (batch[0] for batch in self.made)


PEERS = {"numpy": Numpy, "torch": Torch, "torch_bulk": TorchBulk, "stateful": Stateful,
         "nodes": Nodes, "spdl": Spdl, "grain": Grain, "tfdata": TfData,
         "tf_crop": TfCrop, "webdataset": WebDataset}


def main(name):
    try:
        peer = PEERS[name]()
    except Exception as why:  # an incomplete installation can fail in many ways
        missing(why)

    def open(*how):
        peer.open(*how)
        return []

    def rate(ms):
        return [peer.rate(ms)]

    def check():
        return peer.check()

    def gap(borders):
        return [peer.gap(borders)]

    def resume():
        return peer.resume()

    serve(peer.version, open, rate, check, gap, resume)


if __name__ == "__main__":
    main(sys.argv[1])
