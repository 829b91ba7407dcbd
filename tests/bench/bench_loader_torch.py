"""The PyTorch side of bench_loader.

The process, its sources and its persistent loaders live on between commands, so that start-up is in
no sample but those that measure start-up.
"""
import gc
import os
import time
import warnings

from bench_torch import children, missing, resident, serve

try:
    import torch
    from torch.utils.data import DataLoader, Dataset, RandomSampler
except Exception as why:  # an incomplete installation can fail in many ways
    missing(why)

warnings.filterwarnings("ignore", message=".*worker processes in total.*")


class Source(Dataset):
    """Rows of one tensor in memory; an item is a view, which the default collate copies once."""

    def __init__(self, n, n_bytes):
        self.data = torch.randint(0, 256, (n, n_bytes), dtype=torch.uint8)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


class Trivial(Dataset):
    def __init__(self, n):
        self.data = torch.arange(n)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


class Sleepy(Dataset):
    def __init__(self, n, seconds):
        self.n, self.seconds = n, seconds
        self.row = torch.zeros(1, dtype=torch.int64)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return self.row


SHARING = ("file_descriptor", "file_system")
sources, loaders = {}, {}


def source(n, n_bytes):
    if (n, n_bytes) not in sources:
        sources[n, n_bytes] = Source(n, n_bytes)
    return sources[n, n_bytes]


def persistent(n, n_bytes, per_epoch, batch, workers, prefetch, sharing):
    """A loader whose workers are up and have run an epoch. Kept until `drop`. Sharing 0: tensors go
    to the consumer as file descriptors, the default; 1: as names of files, which is faster."""
    key = (n, n_bytes, per_epoch, batch, workers, prefetch, sharing)
    if key not in loaders:
        torch.multiprocessing.set_sharing_strategy(SHARING[sharing])
        data = source(n, n_bytes)
        loaders[key] = DataLoader(
            data, batch_size=batch, sampler=RandomSampler(data, num_samples=per_epoch),
            num_workers=workers, prefetch_factor=prefetch, persistent_workers=True)
        for _ in loaders[key]:
            pass
        torch.multiprocessing.set_sharing_strategy(SHARING[0])
    return loaders[key]


def rate(*args):
    """Items a second over one epoch, from its first batch to its last: the stall before the first
    batch is left out."""
    it = iter(persistent(*args))
    next(it)
    items, begin = 0, time.perf_counter()
    for batch in it:
        items += len(batch)
    return [items / (time.perf_counter() - begin)]


def verify(n, n_bytes, batch, workers, prefetch):
    """Every row of the source is delivered once, told by the sums of the words at each place of a
    row (n_bytes is a multiple of 8)."""
    data = source(n, n_bytes)
    got = torch.zeros(n_bytes // 8, dtype=torch.int64)
    for rows in DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers,
                           prefetch_factor=prefetch):
        got += rows.view(torch.int64).sum(0)
    if not torch.equal(got, data.data.view(torch.int64).sum(0)):
        raise RuntimeError("delivered bytes differ from the source")
    return [n]


def cpu_seconds():
    """Processor time of this process and all below it."""
    total, todo = 0.0, [os.getpid()]
    while todo:
        pid = todo.pop()
        todo += children(pid)
        total += time.clock_gettime((~pid << 3) | 2)  # the clock of a process, as libc makes it
    return total


def cpu(n, n_bytes, per_epoch, *args):
    """Processor seconds per GiB over one epoch. All workers live on: none is missing at its end."""
    loader = persistent(n, n_bytes, per_epoch, *args)
    before, items = cpu_seconds(), 0
    for batch in loader:
        items += len(batch)
    return [(cpu_seconds() - before) / (items * n_bytes / 2 ** 30)]


def peak(workers, prefetch, batch, n_bytes, n):
    """Growth of memory while the consumer is slower than the workers. Sampled until it has not
    grown by a hundredth in four samples running."""
    data = source(n, n_bytes)
    gc.collect()
    before = resident()
    loader = DataLoader(data, batch_size=batch, num_workers=workers, prefetch_factor=prefetch,
                        sampler=RandomSampler(data, num_samples=batch * (workers * prefetch + 400)))
    it = iter(loader)
    held, top, still, begin = next(it), 0, 0, time.perf_counter()
    while still < 4 and time.perf_counter() - begin < 20:
        time.sleep(0.1)
        now = resident() - before
        still = 0 if now > top * 1.01 else still + 1
        top = max(top, now)
        held = next(it)
    del held, it, loader
    gc.collect()
    return [top]


def first(n, sleep_us, workers, batch):
    data = Sleepy(n, sleep_us * 1e-6)
    begin = time.perf_counter()
    it = iter(DataLoader(data, batch_size=batch, num_workers=workers, prefetch_factor=2))
    next(it)
    took = time.perf_counter() - begin
    del it
    return [took * 1e3]


def start(workers, batch, heap_mib):
    """Milliseconds until all workers are forked, and until the first batch of items that cost
    nothing. The heap is memory in use that every fork has to copy the page tables of."""
    if heap_mib and "heap" not in sources:
        sources["heap"] = torch.randint(0, 256, (heap_mib << 17, 8), dtype=torch.uint8)
    data = Trivial(64)
    begin = time.perf_counter()
    it = iter(DataLoader(data, batch_size=batch, num_workers=workers, prefetch_factor=2))
    started = time.perf_counter()
    next(it)
    took = time.perf_counter() - begin
    del it
    return [(started - begin) * 1e3, took * 1e3]


def gap(n, n_bytes, batch, workers, prefetch, is_persistent, borders):
    """Median gap at an epoch border and 95th percentile of gaps inside epochs, microseconds."""
    loader = DataLoader(source(n, n_bytes), batch_size=batch, shuffle=True, num_workers=workers,
                        prefetch_factor=prefetch, persistent_workers=bool(is_persistent))
    at_border, inside, last = [], [], None
    for _ in range(borders + 1):
        is_first = True
        for _batch in loader:
            now = time.perf_counter()
            if last is not None:
                (at_border if is_first else inside).append(now - last)
            last, is_first = now, False
    at_border.sort()
    inside.sort()
    return [1e6 * at_border[len(at_border) // 2], 1e6 * inside[len(inside) * 95 // 100]]


def drop():
    loaders.clear()
    sources.clear()
    gc.collect()
    return []


serve(torch.__version__, rate, cpu, verify, peak, first, start, gap, drop)
