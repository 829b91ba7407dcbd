"""Draw the charts of tests/bench/charts out of the tables of tests/bench/tables.

A bar has the number of one cell of a table, and the text of this cell stands at its end. The title
of a bar names the table, row, peer and column, which tests/tools/charts.py compares. Without a cell
the bar is left out. A line at the end of a bar is the range over the rounds.
"""
import collections
import math
import re

WIDTH, LEFT, RIGHT, GAP = 800, 16, 16, 6
# Class of CSS: colour on white, colour on dark. "own" is another form of dlpipe, "floor" a limit.
COLOURS = {
    "page": ("#fff", "#0d1117"), "ink": ("#1f2328", "#e6edf3"), "faint": ("#59636e", "#9198a1"),
    "ours": ("#d9480f", "#f0743e"), "own": ("#f2a97e", "#8f4a2a"), "other": ("#9aa7b4", "#6e7b89"),
    "floor": ("#d3dae1", "#3d4651"),
}
LINES = {"axis": ("#d1d9e0", "#3d444d"), "range": ("#1f2328", "#e6edf3")}
OURS, OWN, OTHER, FLOOR = "ours", "own", "other", "floor"
FONT = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
REGIMES = {"near": "cores near each other", "far": "cores far apart", "single": "one core",
           "any": "", "busy": "busy machine"}

# heading: above the bars; label: on the left, once for bars that follow each other; name: in the
# legend. cells: what each panel shows.
Bar = collections.namedtuple("Bar", "heading label name kind cells")
# what: the row's words match it; column: "ours", "theirs" or a heading of the table; peers: names
# in the table, None: any; table: None: the chart's own; regime: None: the first that has a cell.
Cell = collections.namedtuple("Cell", "what column peers table regime", defaults=(None,) * 3)
# What a cell says: its number, its text, the range of its rounds, and where it stands.
Value = collections.namedtuple("Value", "number text low high where")


def number(text):
    """The first number of a cell, and its text; None: the cell has none."""
    m = re.match(r"\s*([0-9][0-9,]*\.?[0-9]*)(?: ([kMG])\b)?", text or "")
    if m is None:
        return None
    return float(m.group(1).replace(",", "")) * SIZES[m.group(2) or ""], m.group(0).strip()


def range_of(text):
    """The range in brackets behind a number: two numbers, or None."""
    m = re.search(r"\((\S+(?: [kMG])?) to (\S+(?: [kMG])?)\)", text or "")
    return (number(m.group(1))[0], number(m.group(2))[0]) if m else None


def cells_of(line):
    """The cells of a table's line, split at its bars as Markdown does."""
    return [c.strip().strip("`") for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def parsed(text):
    """The rows of a table in Markdown, each a dict. What follows "near: ours" belongs to near."""
    rows, names = [], None
    for line in text.splitlines():
        if not line.startswith("| "):
            continue
        if names is None:
            names, regime = [], ""
            for c in cells_of(line):
                regime = c.split(":")[0] + ": " if ": ours" in c else regime
                names.append(regime + c if c in ("theirs", "ratio") else c)
            continue
        rows.append(dict(zip(names, cells_of(line))))
    return rows


def words_of(row):
    """What a row is of, without the quotes of Markdown."""
    return next(iter(row.values())).replace("`", "")


def rounds_of(row, regime, column, base):
    """The range of a cell over its rounds; None: the table does not say it. A range of ratios is
    drawn on one side of them, as if the base had been the same in all rounds."""
    own = range_of(row[regime + column])
    ratios = range_of(row.get(regime + "ratio"))
    if own or not ratios or column == base or not row[regime + base]:
        return own
    ours, theirs = (number(row[regime + c])[0] for c in ("ours", "theirs"))
    of = ours if base == "ours" else theirs
    middle = number(row[regime + "ratio"])[0]
    # The ratio is ours / theirs where more is better, and theirs / ours where less is.
    is_more = abs(ours / theirs - middle) <= abs(theirs / ours - middle)
    if is_more == (base == "theirs"):
        return of * ratios[0], of * ratios[1]
    return of / ratios[1], of / ratios[0]


def values_of(rows, cell, base, table):
    """What the rows that fit say in this cell's column."""
    for row in rows:
        if not re.search(cell.what, words_of(row)):
            continue
        if cell.peers is not None and row.get("peer", "") not in cell.peers:
            continue
        regimes = [cell.regime] if cell.regime else REGIMES
        names = [cell.column] if cell.column in row else \
            [f"{r}: {cell.column}" for r in regimes if number(row.get(f"{r}: {cell.column}"))]
        if names and number(row[names[0]]):
            value, text = number(row[names[0]])
            regime = names[0][:-len(cell.column)]
            low, high = (regime and rounds_of(row, regime, cell.column, base)) or (None, None)
            yield Value(value, text, low, high,
                        f"{table}; {words_of(row)}; {row.get('peer', '')}; {names[0]}")


def picked(tables, target, cell, base, less):
    """The best value of the rows that fit; None: there is none. less: the least one is best."""
    found = [v for table in (cell.table or target).split()
             for v in values_of(tables.get(table, []), cell, base, table)]
    if not found:
        return None
    return (min if less else max)(found, key=lambda v: v.number)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")


def text_at(x, y, words, size=13, kind="ink", more=""):
    return (f"<text class='{kind}' x='{x:.0f}' y='{y:.0f}' font-size='{size}'{more}>"
            f"{escaped(words)}</text>")


BOLD = " font-weight='600'"


def wide(words, size, is_bold=False):
    """About the width of words in pixels; rather too much."""
    return len(words) * size * (0.6 if is_bold else 0.555)


def box(kind, x, y, width, height, title=""):
    inner = f"<title>{escaped(title)}</title></rect>" if title else "</rect>"
    return (f"<rect class='{kind}' x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' "
            f"height='{height}' rx='2'>{inner}")


def style():
    """The colours, for a bright page and for a dark one."""
    def rules(i):
        return "".join([f".{k}{{fill:{c[i]}}}" for k, c in COLOURS.items()] +
                       [f".{k}{{stroke:{c[i]}}}" for k, c in LINES.items()])
    return f"<style>\n{rules(0)}\n@media (prefers-color-scheme:dark){{{rules(1)}}}\n</style>"


def bar_drawn(out, places, y, height, bar, value):
    """A bar, its range and its number. places: where a number stands, and where bars begin."""
    place, begin = places
    middle, end = y + height / 2, place(value.number)
    left, right = sorted((begin, end))
    kind = OURS if bar.kind == OTHER and place(1) == begin < end else bar.kind
    out.append(box(kind, left, y, max(1.5, right - left), height, value.where))
    if value.low is not None and value.high > value.low * 1.005:
        a, b = place(value.low), place(value.high)
        out.append(f"<path class='range' d='M{a:.1f} {middle - 3}v6M{a:.1f} {middle}H{b:.1f}"
                   f"M{b:.1f} {middle - 3}v6'/>")
        right = max(right, b)
    out.append(text_at(max(right, left + 1.5) + 5, middle + 4.5, value.text, 12,
                       more=BOLD if bar.kind == OURS else ""))


def bars_drawn(chart, bars, label, each, y):
    """The bars below each other; each label and heading once. Gives the parts and the end."""
    out, before, height = [], None, 12 if chart.get("legend") else 16
    def places(i, bar):
        """Where the numbers of a panel stand: from 0 on, or with "ratios" on both sides of 1, each
        doubling as long as the others. With "apart" what stands under a heading is by itself."""
        here = [b.cells[i] for b in bars if b.cells[i] and
                not (chart.get("apart") and b.heading != bar.heading)]
        x, long = LEFT + label + i * each, each - 74
        high = max([max(v.number, v.high or 0) for v in here] or [1])
        if not chart.get("ratios"):
            return lambda number: x + long / high * number, x
        low = min(v.low or v.number for v in here)
        def place(number):
            return x + long * math.log(number / low) / math.log(high / low)
        return place, place(1)
    first = y
    def axes(end):
        return [f"<path class='axis' d='M{places(i, bar)[1]:.1f} {first}V{end}'/>"
                for i in range(len(chart["panels"]))]
    for at, bar in enumerate(bars):
        if before is None or bar.heading != before.heading:
            if before is not None:
                out += axes(y)
                y += 4
            if bar.heading:
                y += 16
                out.append(text_at(LEFT, y, bar.heading, 12.5, "faint"))
                y += 6
            first = y
            y += 4
        elif before.label != bar.label:
            y += GAP
        if before is None or (bar.heading, bar.label) != (before.heading, before.label):
            many = 1
            while bars[at + many:] and bars[at + many][:2] == bar[:2]:
                many += 1
            bold = BOLD if bar.kind == OURS and not chart.get("legend") else ""
            out.append(text_at(LEFT + label - 10, y + many * (height + 2) / 2 + 3.5, bar.label, 13,
                               more=f" text-anchor='end'{bold}"))
        for i, value in enumerate(bar.cells):
            if value:
                bar_drawn(out, places(i, bar), y, height, bar, value)
        y += height + 2
        before = bar
    return axes(y + 4) + out, y


def legend_drawn(out, bars, y):
    """What the colours are."""
    x = LEFT
    for name, kind in dict.fromkeys((b.name, b.kind) for b in bars):
        out += [box(kind, x, y - 10, 12, 12), text_at(x + 17, y, name, 12.5)]
        x += 17 + wide(name, 12.5) + 20


def drawn(chart, bars):
    """A chart as SVG: the labels on the left, and beside them a panel for each column of bars."""
    label = max(wide(b.label, 13, b.kind == OURS and not chart.get("legend")) for b in bars) + 14
    each = (WIDTH - LEFT - RIGHT - label) / len(chart["panels"])
    out, y = [text_at(LEFT, 30, chart["title"], 17, more=BOLD)], 30
    for words in chart["under"]:
        y += 19
        out.append(text_at(LEFT, y, words, 12.5, "faint"))
    if chart.get("legend"):
        y += 26
        legend_drawn(out, bars, y)
    y += 28 if any(chart["panels"]) else 8
    for i, words in enumerate(chart["panels"] if any(chart["panels"]) else []):
        out.append(text_at(LEFT + label + i * each, y, words, 13, more=BOLD))
    parts, y = bars_drawn(chart, bars, label, each, y + 6)
    y += 12
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {y}' width='{WIDTH}' "
            f"height='{y}' role='img' {FONT}>\n<title>{escaped(chart['title'])}</title>\n"
            f"{style()}\n<rect class='page' width='{WIDTH}' height='{y}' rx='6'/>\n" +
            "\n".join(out + parts) + "\n</svg>\n")


def bars_of(chart, tables, target):
    """The bars that have a number. With "regimes", those of each regime by themselves."""
    out, base = [], chart.get("base", "ours")
    for regime in chart.get("regimes", (None,)):
        for bar in chart["bars"]:
            cells = [c._replace(regime=regime) if c and regime else c for c in bar.cells]
            values = [picked(tables, target, c, base, chart["unit"] == LESS) if c else None
                      for c in cells]
            if any(values):
                heading = REGIMES[regime] if regime else bar.heading
                out.append(bar._replace(heading=heading, cells=values))
    return out


def bar(label, kind, *cells, heading="", name=""):
    return Bar(heading, label, name or label, kind, [c and Cell(*c) for c in cells])


def pairs(*rows):
    """A bar of ours and one of theirs for each (words, pattern of each panel)."""
    out = []
    for words, *patterns in rows:
        for name, kind, column in (("dlpipe", OURS, "ours"), ("best other queue", OTHER, "theirs")):
            out.append(bar(words, kind, *[(p, column) for p in patterns], name=name))
    return out


def peer(name, kind, *names):
    return bar(name, kind, ("^peers_small,.*prefetch 2,", "theirs", names),
               ("^peers_large,", "theirs", names))


HANDS = (("one mutex, batch a claim", "one mutex, a batch a claim"),
         ("one mutex, item a claim", "one mutex, an item a claim"),
         ("OpenMP, parallel for", "OpenMP, parallel for"),
         ("TBB, batch a token", "TBB pipeline, a batch a token"),
         ("TBB, item a token", "TBB pipeline, an item a token"),
         ("moodycamel's queue", "moodycamel queue, a batch a message"))


def hands():
    """dlpipe's speed over that of code by hand, for each kind of items."""
    return [bar(label, OTHER, *[(f"^hand_{row},.*variant {form},", "ratio", [name])
                                for form in ("default", "fast")], heading=heading)
            for heading, row in (("items of 8 bytes", "8B"), ("items of 784 bytes", "784B"),
                                 ("items of 4 KiB", "4KiB"), ("items of 100 KB", "100KB"),
                                 ("items of 1 MiB", "1MiB"),
                                 ("784 bytes, 5 microseconds of computing", "784B_5us"),
                                 ("784 bytes, 1 item of 100 takes 100 times as long", "784B_skew"),
                                 ("784 bytes, batches of 1", "784B_batch1"))
            for label, name in HANDS]


def by_hand(name, kind, column, peers):
    """A bar of the other run: items of 784 bytes and of 1 MiB."""
    return bar(name, kind, *[(f"^hand_{row},.*variant default,", column, peers, "hand")
                             for row in ("784B", "1MiB")],
               heading="code by hand, in a run of its own; dlpipe as it comes, which clears rows")


def by_hand_too():
    """Verbs whose items are copied, beside the same by hand: one panel for each size."""
    return [bar(name, kind,
                *[(f"^compose_{row},.*item bytes {size},", column, ["by hand"])
                  for size in (784, 16384)],
                heading="2 workers, items that are copied: 784 bytes, and 16 KiB on the right")
            for verb, row in (("filter", "filter"), ("filter and window", "window"),
                              ("expand", "expand"), ("mix", "mix"))
            for name, kind, column in ((verb, OURS, "ours"), ("the same by hand", OTHER, "theirs"))]


def wirings():
    """Bars of threads and of processes for each wiring of bench_topologies."""
    out = []
    for words, kinds, form in (
            ("one read in each worker", (OURS, OWN), "economic_seq"),
            ("64 workers, one read in each", (OURS, OWN), "economic_seq64"),
            ("16 fetching threads in each", (OURS, OWN), "economic_threads"),
            ("16 reads at once in each", (OURS, OWN), "economic_async"),
            ("classic, one read in each", (OURS, OWN), "classic_seq"),
            ("concurrent, 16 threads", (OURS, OWN), "concurrent_threads"),
            ("concurrent, 16 reads at once", (OURS, OWN), "concurrent_async"),
            ("the same, pool of 16 threads", (OURS, OWN), "concurrent_threadspool"),
            ("the same, pool of 16 reads", (OURS, OWN), "concurrent_asyncpool"),
            ("part queue, files of 128", (OURS, OWN), "parts_seq"),
            ("chunks, files of 128", (OURS, OWN), "chunks_seq"),
            ("no loader, one read in each", (FLOOR, FLOOR), "bare_seq"),
            ("no loader, 16 reads in each", (FLOOR, FLOOR), "bare_async"),
            ("no loader, files of 128", (FLOOR, FLOOR), "bare_groups")):
        for place, kind in zip(("threads", "processes"), kinds):
            name = "no loader" if kind == FLOOR else f"dlpipe, {place}"
            out.append(bar(words, kind, *[(f"^topo_{form}_{place}_{where},", "ours")
                                          for where in ("local", "30ms")], name=name))
    return out + [bar("PyTorch", OTHER, *[(f"^topo_economic_seq_threads_{where},", "theirs")
                                          for where in ("local", "30ms")], name="PyTorch")]


MORE, LESS = "longer is better", "shorter is better"
CHARTS = {
    "peers": {
        "title": "Items a second, beside other loaders", "unit": MORE,
        "panels": ["items of 784 bytes", "items of 1 MiB"],
        "note": "2 workers, 2 batches ahead; of a loader with several forms, the fastest one",
        "why": "With items of 1 MiB, copy's 2 threads write 96 MiB of slots, dlpipe 48 MiB, so it "
               "misses the cache less.",
        "bars": [
            bar("dlpipe, threads", OURS, ("^peers_small,.*prefetch 2,", "ours"),
                ("^peers_large,", "ours")),
            bar("dlpipe, processes", OWN, ("^small_items_proc,.*prefetch 2,", "ours", None,
                                           "loader"),
                ("^large_items_proc,", "ours", None, "loader")),
            peer("copy alone, no loader", FLOOR, "copy"),
            peer("libtorch (C++)", OTHER, "libtorch, max_jobs = prefetch",
                 "libtorch, max_jobs = prefetch x workers"),
            peer("tf.data", OTHER, "tfdata"), peer("SPDL", OTHER, "spdl"),
            bar("PyTorch", OTHER, *[(f"^(peers_)?{size}.*prefetch 2,", "theirs",
                                     ["torch", "torch_bulk"], "peers loader")
                                    for size in ("small(_items)?,", "large(_items)?,")]),
            peer("Grain", OTHER, "grain"),
            by_hand("dlpipe, threads", OURS, "ours", None)] +
            [by_hand(label, OTHER, "theirs", [name]) for label, name in HANDS],
        "runs": {"hand": "code by hand"},
    },
    "hand": {
        "title": "dlpipe beside code by hand: its items a second over theirs", "unit": MORE,
        "ratios": True,
        "panels": ["as it comes, 2 batches ahead", "without clearing, 16 ahead"],
        "note": "2 workers; right of the line dlpipe is ahead; the scale is logarithmic",
        "bars": hands(),
    },
    "loader": {
        "title": "Memory beside PyTorch's DataLoader, bytes at the peak", "unit": LESS,
        "panels": [""], "base": "theirs", "legend": True,
        "note": "batches of 16 items of 1 MiB, 2 batches ahead",
        "bars": [bar(f"{n} worker" + "s" * (n > 1), kind, (f"^peak_bytes_w{n}{form},", column),
                     name=name)
                 for n in (1, 2, 4, 8, 16, 64) for name, kind, form, column in
                 (("dlpipe, threads", OURS, "", "ours"),
                  ("dlpipe, processes", OWN, "_proc", "ours"),
                  ("PyTorch, processes", OTHER, "", "theirs"))],
    },
    "queue": {
        "title": "Queues between two cores, operations a second", "unit": MORE,
        "panels": ["between threads", "between processes"], "legend": True,
        "note": "the best other queue of each round; no bar: each round was disturbed",
        "regimes": ("near", "far"),
        "bars": pairs(*[(words, f"^{form},", f"^{form}_proc,") for words, form in (
            ("one writer, 8 bytes", "spsc_8B_single"), ("one writer, 64 bytes", "spsc_64B_single"),
            ("8 bytes, 32 at once", "spsc_8B_burst32"),
            ("64 bytes, 32 at once", "spsc_64B_burst32"),
            ("8 bytes, there and back", "spsc_8B_roundtrip"),
            ("many-writer queue, 1 writer", "mpsc_1p"),
            ("many-writer queue, 4 writers", "mpsc_4p"), ("blocking, 1 writer", "block_1p"),
            ("blocking, 4 writers", "block_4p"), ("blocking, 8 writers", "block_8p"))]),
    },
    "crop": {
        "title": "JPEGs decoded, of which the middle is kept; pictures a second", "unit": MORE,
        "panels": [""], "note": "2 workers, 4 batches ahead", "base": "theirs",
        "bars": [bar("dlpipe, decodes the middle", OURS, ("crop_kept", "ours", ["tf.data"])),
                 bar("dlpipe, decodes all", OWN, ("crop_whole", "ours")),
                 bar("tf.data, decode_and_crop", OTHER, ("crop_kept", "theirs", ["tf.data"]))],
    },
    "files": {
        "title": "Files of 100 KB, files a second", "unit": MORE, "base": "theirs", "legend": True,
        "panels": ["cold page cache", "warm page cache"],
        "note": "in flight: reads of each worker",
        "bars": [bar(f"{w} worker{'s' * (w > 1)}, {k} in flight", kind,
                     *[(f"files_100k_{t}_{form}_k{k}, workers {w},", column, None, None, "near")
                       for t in ("cold", "warm")], name=name)
                 for w in (1, 2) for k in (4, 16) for name, kind, form, column in
                 (("dlpipe, io_uring", OURS, "ring", "ours"),
                  ("dlpipe, threads", OWN, "threads", "ours"),
                  ("one pread after another", OTHER, "ring", "theirs"))],
    },
    "compose": {
        "title": "What a stage adds: nanoseconds an item", "unit": LESS, "base": "theirs",
        "panels": ["2 workers", "16 workers"], "note": "empty callbacks; plain has no such stage",
        "apart": True,
        "bars": [bar(name, kind, *[(f"compose_{row}, workers {w},", "ours") for w in (2, 16)])
                 for name, kind, row in (
                     ("plain", FLOOR, "plain"), ("map", OURS, "map_fused"),
                     ("map, workers of its own", OURS, "map"), ("filter", OURS, "filter"),
                     ("filter and window", OURS, "window"), ("expand", OURS, "expand"),
                     ("second fetch", OURS, "zip_fused"),
                     ("second fetch, own workers", OURS, "zip"), ("mix", OURS, "mix"),
                     ("fields that end, own workers", OURS, "scratch"))] + by_hand_too(),
    },
    "ragged": {
        "title": "Items of any length: nanoseconds an item", "unit": LESS, "base": "theirs",
        "panels": ["1 worker"], "note": "504 bytes on average; \"one long\": one has 1 MiB",
        "bars": [bar("packed by hand, one thread", FLOOR, ("^ragged_1000,", "theirs"))] +
                [bar(name, kind, (f"^{row},", "ours"), heading=heading)
                 for heading, rows in (
                     ("a callback", (("room of 1,000 bytes", OURS, "ragged_1000"),
                                     ("room of 4 KiB", OURS, "ragged_4k"),
                                     ("room of 64 KiB", OURS, "ragged_64k"),
                                     ("room of 64 KiB, cleared", OWN, "ragged_64k_zeroed"),
                                     ("room of 1 MiB", OURS, "ragged_1m"),
                                     ("room of 1 MiB, one long", OURS, "ragged_one_long"))),
                     ("lines", (("none long", OURS, "lines_short"),
                                ("one long", OURS, "lines_one_long"))),
                     ("tar", (("none long", OURS, "tar_short"),
                              ("one long", OURS, "tar_one_long"))),
                     ("files", (("none long", OURS, "files_short"),
                                ("one long", OURS, "files_one_long"))))
                 for name, kind, row in rows],
    },
    "subscribers": {
        "title": "Batches that other programs take, items a second", "unit": MORE,
        "panels": ["each gets all batches", "they share the batches"], "base": "theirs",
        "note": "the slowest of the programs; or all of them together", "regimes": ("near", "far"),
        "bars": [bar("the pipe's own consumer", FLOOR, *[("subscribers_none", "ours")] * 2)] +
                [bar(f"{n} other program" + "s" * (n > 1), OURS,
                     *[(f"subscribers_{how}, subscribers {n},", "ours") for how in ("each", "one")])
                 for n in (1, 2, 3)],
    },
    "tokens": {
        "title": "Windows of token shards, million tokens a second", "unit": MORE, "base": "theirs",
        "panels": ["64 windows of 1024", "4 windows of 64"], "note": "16-bit tokens",
        "bars": [bar(name, kind, *[(f"^tokens_{form}_{size},", "ours", ["fread", ""])
                                   for size in ("b64_t1024", "b4_t64")])
                 for name, kind, form in (
                     ("dlpipe, in the consumer", OURS, "inline_u16"),
                     ("dlpipe, one worker", OURS, "worker_u16"),
                     ("dlpipe, worker, to int32", OURS, "worker_i32"),
                     ("fread of a batch (llm.c's)", OTHER, "fread"),
                     ("fread of each row", OTHER, "fread_rows"))],
    },
    "order": {
        "title": "A shuffled order that is computed: nanoseconds an index", "unit": LESS,
        "panels": ["60,000 items", "10^9 items"], "note": "no table, no memory",
        "bars": [bar(name, OURS, *[(f"^order_ns_{n}{form},", "ours") for n in ("60000", "1e9")])
                 for name, form in (("a run of indices", ""), ("one index", "_single"),
                                    ("a run, without SIMD", "_without_simd"))],
    },
    "s3_pipe": {
        "title": "Training from an S3 store 30 ms away",
        "unit": "", "panels": ["JPEGs a second (longer is better)", "peak MB (shorter is better)"],
        "note": "dlpipe, 4 workers", "base": "theirs",
        "bars": [bar(name, kind, (f"^topo_{form}_threads_s3{step},", "ours"),
                     (f"^topo_{form}_threads_s3{step},", "peak, MB"), heading=heading)
                 for heading, step in (("10 epochs as fast as they come", ""),
                                       ("2 epochs with a training step of 100 ms", "_step"))
                 for name, kind, form in (
                     ("16 requests in each worker", OURS, "economic_async"),
                     ("one request in each worker", OWN, "classic_seq"))],
    },
    "topologies": {
        "title": "JPEGs of 58 KB read and decoded, pictures a second", "unit": MORE,
        "panels": ["local files", "30 ms away"], "base": "theirs", "legend": True,
        "note": "4 workers where no number stands",
        "why": "Part queue and chunks read files of 128 pictures, and wait for fewer requests.",
        "bars": wirings(),
    },
    "s3": {
        "title": "S3 clients: objects of 100 KB", "unit": "",
        "panels": ["objects a second (longer is better)", "CPU ms an object (shorter is better)"],
        "note": "wrk is what the server can do",
        "bars": [bar(name, kind, (f"^s3_100k_{path}_c{n},", column, peers),
                     (f"^s3_cpu_ms_per_object, at {path}_c{n},", column, peers),
                     heading=f"{words}, {n} requests in flight")
                 for path, words, in_flight in (("loop", "same machine", (16, 64)),
                                                ("30ms", "30 ms away", (16, 64, 256)))
                 for n in in_flight for name, kind, column, peers in (
                     ("dlpipe, one thread", OURS, "ours", None), ("wrk", FLOOR, "theirs", ["wrk"]),
                     ("curl", OTHER, "theirs", ["curl"]), ("rclone", OTHER, "theirs", ["rclone"]),
                     ("boto3", OTHER, "theirs", ["boto3"]))],
    },
}


def of_head(text, spec):
    """What the line above a table says: the machine, the day, and the regime, in few words."""
    m = re.search(r"`make bench-\S+` on ([^;]+); ([^;]+); ([0-9-]+(?:, [0-9-]+)*); ", text)
    regime = re.search(r"\| (near|far|single|any|busy): ours", text)
    if m is None:
        return "", ""
    return (f"{m.group(1)}; {m.group(2)}; {m.group(3)}",
            REGIMES[regime.group(1)] if regime and "regimes" not in spec else "")


def chart(target, texts):
    """The chart of a table as SVG; texts: all tables by name. None: the table has no number."""
    spec = dict(CHARTS[target])
    bars = bars_of(spec, {name: parsed(text) for name, text in texts.items()}, target)
    if not bars:
        return None
    used = dict.fromkeys([target] + [v.where.split("; ")[0] for b in bars for v in b.cells if v])
    runs = spec.get("runs", {})
    machine = " and ".join(dict.fromkeys(of_head(texts[name], spec)[0] for name in used
                                         if name not in runs))
    regime = of_head(texts[target], spec)[1]
    ranges = "lines: the range over the rounds" if any(
        v and v.low is not None and v.high > v.low * 1.005 for b in bars for v in b.cells) else ""
    spec["under"] = ["; ".join(w for w in (regime, spec["note"], spec["unit"]) if w)]
    spec["under"] += [f"{words}: {'; '.join(of_head(texts[name], spec))}"
                      for name, words in runs.items() if name in used]
    spec["under"] += [words for words in ("; ".join(w for w in (machine, ranges) if w),
                                          spec.get("why")) if words]
    return drawn(spec, bars)
