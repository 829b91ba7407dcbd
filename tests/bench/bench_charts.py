"""Draw the charts of tests/bench/charts out of the tables of tests/bench/tables.

A bar has the number of one cell of a table, and the text of this cell stands at its end. So a chart
has no number that its table has not. Without a cell the bar is left out.
"""
import re

WIDTH, LEFT, RIGHT, BAR, GAP = 800, 16, 16, 16, 6
INK, FAINT, LINE = "#1f2328", "#59636e", "#d1d9e0"
OURS, OTHER, FLOOR = "#d9480f", "#9aa7b4", "#d8dee4"
FONT = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def number(text):
    """The first number of a cell, and its text; None: the cell has none."""
    m = re.match(r"\s*([0-9][0-9,]*\.?[0-9]*)(?: ([kMG])\b)?", text or "")
    if m is None:
        return None
    return float(m.group(1).replace(",", "")) * SIZES[m.group(2) or ""], m.group(0).strip()


def parsed(text):
    """The rows of a table in Markdown, each a dict; "near: ours" is followed by "near: theirs"."""
    rows, names = [], None
    for line in text.splitlines():
        if not line.startswith("| "):
            continue
        cells = [c.strip() for c in line.strip().strip("|").split(" | ")]
        if names is None:
            names, regime = [], ""
            for c in cells:
                regime = c.split(":")[0] + ": " if ": ours" in c else regime
                names.append(regime + c if c in ("theirs", "ratio") else c)
            continue
        rows.append(dict(zip(names, [c.strip("`| ") for c in cells])))
    return rows


def words_of(row):
    """What a row is of, without the quotes of Markdown."""
    return next(iter(row.values())).replace("`", "")


def column_of(row, column):
    """The cell of a column; of "ours" and "theirs" that of the first regime that has one."""
    if column in row:
        return row[column]
    for regime in ("near", "far", "single", "any"):
        if number(row.get(f"{regime}: {column}")):
            return row[f"{regime}: {column}"]
    return None


def picked(rows, what, column, peers=None):
    """The best cell of the rows that fit; "best" is the largest, or with "<" in front the least."""
    least = column.startswith("<")
    found = []
    for row in rows:
        if re.search(what, words_of(row)) and (peers is None or row.get("peer", "") in peers):
            cell = number(column_of(row, column.lstrip("<")))
            if cell:
                found.append(cell)
    if not found:
        return None
    return min(found) if least else max(found)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")


def text_at(x, y, words, size=13, fill=INK, more=""):
    return (f"<text x='{x:.0f}' y='{y:.0f}' font-size='{size}' fill='{fill}'{more}>"
            f"{escaped(words)}</text>")


def drawn(chart, bars):
    """A chart as SVG: the labels on the left, and beside them a panel for each column of bars."""
    panels = chart["panels"]
    label = max([len(name) * (8 if kind == OURS else 7.2) + 14 for _, name, kind, _ in bars] +
                [len(group) * 6.8 + 10 for group, _, _, _ in bars])
    each = (WIDTH - LEFT - RIGHT - label) / len(panels)
    out, y = [], 30
    out.append(text_at(LEFT, y, chart["title"], 17, more=" font-weight='600'"))
    for words in chart["under"]:
        y += 19
        out.append(text_at(LEFT, y, words, 12.5, FAINT))
    y += 30 if panels[0] else 8
    first = y + 4
    for i, words in enumerate(panels):
        if words:
            out.append(text_at(LEFT + label + i * each, y, words, 13, more=" font-weight='600'"))
    y += 10
    top = [max([v[i][0] for _, _, _, v in bars if v[i]] or [1]) for i in range(len(panels))]
    before = None
    for group, name, kind, values in bars:
        if group != before:
            if group:
                y += 20
                out.append(text_at(LEFT, y, group, 12.5, FAINT))
            y += 6
            before = group
        bold = " font-weight='600'" if kind == OURS else ""
        out.append(text_at(LEFT + label - 10, y + BAR - 3.5, name, 13,
                           more=f" text-anchor='end'{bold}"))
        for i, value in enumerate(values):
            if value is None:
                continue
            x, room = LEFT + label + i * each, each - 74
            long = max(1.5, room * value[0] / top[i])
            out.append(f"<rect x='{x:.1f}' y='{y}' width='{long:.1f}' height='{BAR}' rx='2' "
                       f"fill='{kind}'/>")
            out.append(text_at(x + long + 5, y + BAR - 3.5, value[1], 12.5, more=bold))
        y += BAR + GAP
    y += 10
    for i in range(len(panels)):
        x = LEFT + label + i * each
        out.append(f"<path d='M{x:.1f} {first}V{y - 10}' stroke='{LINE}'/>")
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {y}' width='{WIDTH}' "
            f"height='{y}' role='img' {FONT}>\n<title>{escaped(chart['title'])}</title>\n"
            f"<rect width='{WIDTH}' height='{y}' rx='6' fill='#ffffff'/>\n" +
            "\n".join(out) + "\n</svg>\n")


def bars_of(chart, rows):
    out = []
    for group, name, kind, cells in chart["bars"]:
        values = [picked(rows, *c) if c else None for c in cells]
        if any(values):
            out.append((group, name, kind, values))
    return out


def plain(rows):
    """The bars of a table that no chart fits: ours beside theirs, of the rows of the first unit."""
    out, unit = [], None
    for row in rows:
        words = words_of(row)
        of = words.rsplit(", ", 1)[-1]
        unit = unit or of
        ours, theirs = (number(column_of(row, c)) for c in ("ours", "theirs"))
        if of != unit or ours is None or len(out) > 20:
            continue
        group = words[:-len(of) - 2]
        if not any(b[0] == group for b in out):
            out.append((group, "dlpipe", OURS, [ours]))
        if theirs:
            out.append((group, row.get("peer", ""), OTHER, [theirs]))
    return out, unit


def pairs(rows, ours="dlpipe", theirs="best other", column="theirs"):
    """Two bars for each (words, pattern) of rows."""
    out = []
    for words, *patterns in rows:
        out.append((words, ours, OURS, [(p, "ours") if p else None for p in patterns]))
        out.append((words, theirs, OTHER, [(p, column) if p else None for p in patterns]))
    return out


def by_peer(patterns, peers):
    """A bar for ours, and one for each (words, kind, names in the table) of peers."""
    out = [("", "dlpipe", OURS, [(p, "ours") for p in patterns])]
    return out + [("", name, kind, [(p, "theirs", names) for p in patterns])
                  for name, kind, names in peers]


MORE, LESS = "longer is better", "shorter is better"
TOPOLOGIES = (
    ("dlpipe: economic, one at a time", "economic, one at a time"),
    ("dlpipe: economic, 16 at once", "economic, asynchronous"),
    ("dlpipe: classic", "^classic"),
    ("dlpipe: concurrent", "^concurrent, asynchronous"),
    ("dlpipe: part queue", "^part queue"), ("dlpipe: chunks", "^chunks"),
)
CHARTS = {
    "peers": {
        "title": "Items a second, beside other loaders", "unit": MORE,
        "panels": ["items of 784 bytes", "items of 1 MiB"],
        "note": "2 workers, 2 batches ahead; of a loader with several forms, the fastest one",
        "why": "With items of 1 MiB, copy's 2 threads write 96 MiB of slots, dlpipe 48 MiB, so it "
               "misses the cache less.",
        "bars": by_peer(["peers_small,.*prefetch 2,", "peers_large,"], [
            ("copy alone, no loader", FLOOR, ["copy"]),
            ("libtorch (C++)", OTHER, ["libtorch, max_jobs = prefetch",
                                       "libtorch, max_jobs = prefetch x workers"]),
            ("tf.data", OTHER, ["tfdata"]), ("SPDL", OTHER, ["spdl"]),
            ("PyTorch", OTHER, ["torch", "torch_bulk"]), ("Grain", OTHER, ["grain"])]),
    },
    "loader": {
        "title": "Items a second, beside PyTorch's DataLoader", "unit": MORE,
        "panels": ["items of 784 bytes", "items of 1 MiB"], "note": "2 workers, 2 batches ahead",
        "why": "memcpy is one thread; the 2 workers of dlpipe copy at once.",
        "bars": [
            ("", "dlpipe, threads", OURS, [("^small_items,.*prefetch 2,", "ours"),
                                           ("^large_items,", "ours")]),
            ("", "dlpipe, processes", OURS, [("^small_items_proc,.*prefetch 2,", "ours"),
                                             ("^large_items_proc,", "ours")]),
            ("", "memcpy, one thread", FLOOR, [("^small_items,.*prefetch 2,", "theirs", ["memcpy"]),
                                              ("^large_items,", "theirs", ["memcpy"])]),
            ("", "PyTorch, file_system", OTHER,
             [("^small_items,.*prefetch 2,.*file_system", "theirs"),
              ("^large_items,.*file_system", "theirs")]),
            ("", "PyTorch, file_descriptor", OTHER,
             [("^small_items,.*prefetch 2,.*file_descriptor", "theirs"),
              ("^large_items,.*file_descriptor", "theirs")])],
    },
    "queue": {
        "title": "Queues between two cores, operations a second", "unit": MORE,
        "panels": ["between threads", "between processes"],
        "note": "the best other queue of each round",
        "bars": pairs([
            ("one writer, 8 bytes", "^spsc_8B_single,", "^spsc_8B_single_proc,"),
            ("one writer, 64 bytes", "^spsc_64B_single,", "^spsc_64B_single_proc,"),
            ("one writer, 8 bytes, 32 at once", "^spsc_8B_burst32,", "^spsc_8B_burst32_proc,"),
            ("four writers, 8 bytes", "^mpsc_4p,", "^mpsc_4p_proc,"),
            ("four writers, blocking", "^block_4p,", "^block_4p_proc,")]),
    },
    "crop": {
        "title": "JPEGs decoded, of which the middle is kept; pictures a second", "unit": MORE,
        "panels": [""], "note": "2 workers, 4 batches ahead",
        "bars": [("", "dlpipe, decodes the middle", OURS, [("crop_kept", "ours")]),
                 ("", "dlpipe, decodes all", OURS, [("crop_whole", "ours")]),
                 ("", "tf.data, decode_and_crop", OTHER, [("crop_kept", "theirs", ["tf.data"])])],
    },
    "files": {
        "title": "Files of 100 KB, files a second", "unit": MORE,
        "panels": ["cold page cache", "warm page cache"], "note": "4, 16 or 64 reads in flight",
        "bars": [(f"{k} in flight", name, kind,
                  [(f"files_100k_{t}_{form}_k{k},", col) for t in ("cold", "warm")])
                 for k in (4, 16, 64) for name, kind, form, col in
                 (("dlpipe, io_uring", OURS, "ring", "ours"),
                  ("dlpipe, threads", OURS, "threads", "ours"),
                  ("one pread after another", OTHER, "ring", "theirs"))],
    },
    "compose": {
        "title": "What a stage adds: nanoseconds an item", "unit": LESS,
        "panels": ["2 workers", "16 workers"], "note": "empty callbacks; plain has no such stage",
        "bars": [("", name, kind, [(f"compose_{row}, workers {w},", "ours") for w in (2, 16)])
                 for name, kind, row in (
                     ("plain", FLOOR, "plain"), ("map", OURS, "map_fused"),
                     ("map, workers of its own", OURS, "map"), ("filter", OURS, "filter"),
                     ("filter and window", OURS, "window"), ("expand", OURS, "expand"),
                     ("second fetch", OURS, "zip_fused"),
                     ("second fetch, own workers", OURS, "zip"), ("mix", OURS, "mix"),
                     ("fields that end, own workers", OURS, "scratch"))],
    },
    "subscribers": {
        "title": "Batches that other programs take, items a second", "unit": MORE,
        "panels": ["each gets all batches", "they share the batches"],
        "note": "the slowest of the programs; or all of them together",
        "bars": [("", "the pipe's own consumer", FLOOR, [("subscribers_none", "ours")] * 2)] +
                [("", f"{n} other program" + "s" * (n > 1), OURS,
                  [(f"subscribers_{how}, subscribers {n},", "ours") for how in ("each", "one")])
                 for n in (1, 2, 3)],
    },
    "tokens": {
        "title": "Windows of token shards, million tokens a second", "unit": MORE,
        "panels": ["64 windows of 1024", "4 windows of 64"], "note": "16-bit tokens",
        "bars": [("", name, kind, [(f"^tokens_{form}_{size},", "ours")
                                   for size in ("b64_t1024", "b4_t64")])
                 for name, kind, form in (
                     ("dlpipe, in the consumer", OURS, "inline_u16"),
                     ("dlpipe, one worker", OURS, "worker_u16"),
                     ("dlpipe, widened to int32", OURS, "worker_i32"),
                     ("fread of a batch (llm.c's way)", OTHER, "fread"),
                     ("fread of each row", OTHER, "fread_rows"))],
    },
    "order": {
        "title": "A shuffled order that is computed: nanoseconds an index", "unit": LESS,
        "panels": ["60,000 items", "10^9 items"], "note": "no table, no memory",
        "bars": [("", name, OURS, [(f"^order_ns_{n}{form},", "ours") for n in ("60000", "1e9")])
                 for name, form in (("a run of indices", ""), ("one index", "_single"),
                                    ("a run, without SIMD", "_without_simd"))],
    },
    "s3_pipe": {
        "title": "Training from an S3 store 30 ms away",
        "unit": "longer is better on the left, shorter on the right",
        "panels": ["JPEGs a second", "peak MB"], "note": "dlpipe, 4 workers",
        "bars": [("", name, kind, [(what, col) for what in ("10 epochs", "peak bytes")])
                 for name, kind, col in (
                     ("16 requests in each worker", OURS, "economic, 16 in flight in each"),
                     ("one request in each worker", OTHER, "classic, one at a time"))],
    },
    "topologies": {
        "title": "JPEGs of 58 KB read and decoded, pictures a second", "unit": MORE,
        "panels": ["local files", "30 ms away"], "note": "4 workers, threads",
        "why": "Part queue and chunks read files of 128 pictures, and wait for fewer requests.",
        "bars": [("", name, OURS, [(what, "files: items/s, threads / processes"),
                                   (what, "30 ms: items/s, threads / processes")])
                 for name, what in TOPOLOGIES] +
                [("", name, kind, [(files, "files: items/s, threads / processes"),
                                   (far, "30 ms: items/s, threads / processes")])
                 for name, kind, files, far in (
                     ("a loop, no loader", FLOOR, "^bare: one at a time",
                      "^bare: 16 requests in each, asynchronous"),
                     ("a loop, files of 128", FLOOR, "^bare: files of 128", "^bare: files of 128"),
                     ("PyTorch", OTHER, "^PyTorch", "^PyTorch"))],
    },
    "s3": {
        "title": "S3 clients: objects of 100 KB", "unit": "longer is better on the left, shorter "
        "on the right", "panels": ["objects a second", "processor ms an object"],
        "note": "loopback, 16 requests in flight; wrk is what the server can do",
        "bars": [("", name, kind, [("^loopback, 16", col), ("processor time, loopback, 16", col)])
                 for name, kind, col in (
                     ("dlpipe, one thread", OURS, "dlpipe, one thread"),
                     ("wrk", FLOOR, "wrk"), ("curl", OTHER, "curl"), ("rclone", OTHER, "rclone"),
                     ("boto3", OTHER, "boto3"))],
    },
}


def of_head(text, target):
    """What the line above a table says: the machine, the day, and the regimes, in few words."""
    m = re.search(r"`make bench-\S+` on ([^;]+); ([^;]+); ([0-9-]+(?:, [0-9-]+)*); ", text)
    regime = re.search(r"\| (near|far|single|any): ours", text)
    if m is None:
        return "", ""
    return (f"{m.group(1)}; {m.group(2)}; {m.group(3)}",
            {"near": "cores near each other", "far": "cores far apart"}.get(
                regime.group(1) if regime else "", ""))


def chart(target, text):
    """The chart of a table as SVG; None: the table has no number."""
    rows = parsed(text)
    spec = dict(CHARTS.get(target, {"title": target, "bars": [], "unit": "", "note": ""}))
    bars = bars_of(spec, rows)
    if not bars:
        bars, unit = plain(rows)
        spec.update(panels=[unit or ""], unit="", note="")
    if not bars:
        return None
    machine, regime = of_head(text, target)
    spec["under"] = [", ".join(w for w in (regime, spec["note"]) if w) +
                     ("; " if spec["note"] and spec["unit"] else "") + spec["unit"]]
    spec["under"] += [words for words in (machine, spec.get("why")) if words]
    return drawn(spec, bars)
