"""What the PyTorch sides of the benchmarks share: one process that answers one command per line.

Says "ready <version>" or "missing <why>" first. Each command is answered with "ok <numbers>" or
"error <why>".
"""
import os
import sys


def missing(why):
    print("missing", str(why).replace("\n", " "), flush=True)
    sys.exit(0)


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as f:
            found += [int(c) for c in f.read().split()]
    return found


def resident():
    """Bytes of this process and all below it. Shared memory is counted once: pages of /dev/shm that
    are mapped are in the PSS too, those in flight between two processes are in no PSS."""
    private = shared = 0
    todo = [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            todo += children(pid)
            with open(f"/proc/{pid}/smaps_rollup") as f:
                kib = dict((line.split()[0], int(line.split()[1])) for line in f if line[0] == "P")
        except (FileNotFoundError, ProcessLookupError):
            continue
        private += 1024 * (kib["Pss:"] - kib["Pss_Shmem:"])
        shared += 1024 * kib["Pss_Shmem:"]
    fs = os.statvfs("/dev/shm")
    return private + max(shared, (fs.f_blocks - fs.f_bfree) * fs.f_frsize)


def serve(version, *commands):
    known = {f.__name__: f for f in commands}
    print("ready", version, flush=True)
    for line in sys.stdin:
        words = line.split()
        try:
            answer = known[words[0]](*(int(w) for w in words[1:]))
            print("ok", *(repr(float(a)) for a in answer), flush=True)
        except Exception as why:
            print("error", type(why).__name__, str(why).replace("\n", " ")[:200], flush=True)
