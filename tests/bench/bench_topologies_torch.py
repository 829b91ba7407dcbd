"""The PyTorch side of bench_topologies. PICTURES in the environment: the folder.

The process and its persistent loaders live on between commands, so that start-up is in no rate.
"""
import gc
import io
import os
import time
import warnings

from bench_torch import missing, resident, serve

try:
    import numpy
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset, Sampler
except Exception as why:  # an incomplete installation can fail in many ways
    missing(why)

warnings.filterwarnings("ignore", message=".*worker processes in total.*")
torch.set_num_threads(1)
FOLDER = os.environ["PICTURES"]
SIDE = 224


class Pictures(Dataset):
    """Each picture after a latency: decoded whole, of which the middle is kept, as ours."""

    def __init__(self, latency):
        self.latency = latency

    def __getitem__(self, i):
        if self.latency:
            time.sleep(self.latency)
        with open(f"{FOLDER}/{i:05d}.jpg", "rb") as f:
            picture = Image.open(io.BytesIO(f.read())).convert("RGB")
        left, top = (picture.width - SIDE) // 2, (picture.height - SIDE) // 2
        return torch.from_numpy(numpy.array(picture.crop((left, top, left + SIDE, top + SIDE))))


class Part(Sampler):
    """A shuffle of items first .. first + n - 1; the two are set between epochs."""

    def __init__(self):
        self.first = self.n = 0

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter((torch.randperm(self.n) + self.first).tolist())


loaders = {}


def make(batch, workers, prefetch, latency_us, persistent):
    part = Part()
    return part, DataLoader(Pictures(latency_us * 1e-6), batch_size=batch, sampler=part,
                            num_workers=workers, prefetch_factor=prefetch,
                            persistent_workers=persistent)


def persistent(first, n, *how):
    """A loader whose workers are up and have run an epoch."""
    if how not in loaders:
        loaders[how] = make(*how, True)
        part, loader = loaders[how]
        part.first, part.n = first, min(n, 4 * how[0])
        for _ in loader:
            pass
    part, loader = loaders[how]
    part.first, part.n = first, n
    return loader


def take(loader, epochs, step, look):
    """Two epochs, with a step that sleeps behind each batch: items a second, share of waiting,
    milliseconds to the first batch and at the border, bytes at most, the sum of an epoch's bytes as
    64-bit words, in two halves."""
    items, waited, border, first, top, total = 0, 0.0, 0.0, None, 0, 0
    begin = now = time.perf_counter()
    for epoch in range(epochs):
        is_first = True
        for rows in loader:
            got = time.perf_counter()
            if first is None:
                first = got
            else:
                waited += got - now
                border = got - now if is_first else border
            is_first = False
            if look:
                top = max(top, resident())
                if epoch == 0:
                    total += int(rows.view(-1).view(torch.int64).sum())
            items += len(rows)
            time.sleep(step)
            now = time.perf_counter()
    return [items / (now - begin), waited / (now - first), 1e3 * (first - begin), 1e3 * border, top,
            total >> 32 & 0xffffffff, total & 0xffffffff]


def topology(first, n, batch, workers, prefetch, latency_us, epochs, step_us, look):
    if not look:
        loader = persistent(first, n, batch, workers, prefetch, latency_us)
        return take(loader, epochs, step_us * 1e-6, False)
    gc.collect()
    before = resident()
    part, loader = make(batch, workers, prefetch, latency_us, True)
    part.first, part.n = first, n
    answer = take(loader, epochs, step_us * 1e-6, True)
    answer[4] -= before
    del loader
    gc.collect()
    return answer


serve(torch.__version__, topology)
