"""Write the tables and charts of the benchmarks.

bench_tables.py RUNS FOLDER [TARGET...]

For each TARGET (all) with RUNS/TARGET.jsonl, what stands in FOLDER/tables/TARGET.md between
"<!-- TARGET -->" and "<!-- end -->" is written again: machine, probe and date of the run, and a row
for each figure with columns for each regime. Lines of a quick run are refused. Rows of which only
disturbed rounds are left, and peers that were skipped, are named below the table. Then
FOLDER/charts/TARGET.svg is drawn out of the table as it stands there (bench_charts.py).
"""
import json
import os
import re
import sys

import bench_charts

TARGETS = ("queue", "loader", "peers", "hand", "crop", "files", "compose", "ragged", "subscribers",
           "tokens", "order", "s3_pipe", "topologies", "s3")
# What tells rows of one name apart.
KEYS = ("workers", "producers", "subscribers", "prefetch", "item_bytes", "sharing", "until",
        "heap_mib", "persistent", "variant", "at")
# What a row has besides, in columns of its own: key, heading, factor.
BESIDES = {
    "topologies": (("plan_bytes", "memory planned, MB", 1e-6), ("wait_share", "waited, %", 100),
                   ("first_batch_ms", "first batch, ms", 1)),
    "compose": (("plan_bytes", "memory planned, MB", 1e-6), ("peak_bytes", "peak, MB", 1e-6)),
    "s3_pipe": (("peak_bytes", "peak, MB", 1e-6), ("wait_share", "waited, %", 100),
                ("first_batch_ms", "first batch, ms", 1)),
}
STEADY = ("near", "far", "single", "any", "busy")
# Of the queues each peer would be too much for a page: the best of each round is shown.
QUEUES = ("spsc", "mpsc", "block")


def figure(x):
    """Three digits that count, and no exponent."""
    if x != x or x == 0:
        return "0"
    for size, name in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(x) >= size:
            return f"{x / (size if size > 1e4 else 1e3):.3g}{name}"
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def lines_of(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def label(line):
    keys = [f"{k.replace('_', ' ')} {line[k]}" for k in KEYS if line.get(k) not in (None, "")]
    return ", ".join([f"`{line['bench']}`"] + keys)


def is_shown(line):
    if not {"ours", "regime"} <= line.keys() or line["bench"] == "line_roundtrip":
        return False
    return not line["bench"].startswith(QUEUES) or line.get("peer") == "best"


def rows_of(lines):
    rows = {}
    for line in lines:
        if is_shown(line):
            by = rows.setdefault((label(line), line.get("peer"), line["unit"]), {})
            if line["regime"] in by:
                print(f"two lines for one row: {label(line)}, {line.get('peer')}: the last one")
            by[line["regime"]] = line
    return rows


def cell(line):
    """Ours, theirs, ratio with the range of its rounds; or ours with its range."""
    if line is None:
        return " | | "
    if "theirs" not in line:
        low, high = line.get("ours_min"), line.get("ours_max")
        return f"{figure(line['ours'])} ({figure(low)} to {figure(high)}) | | "
    low, high = line["ratio_min"], line["ratio_max"]
    return (f"{figure(line['ours'])} | {figure(line['theirs'])} | "
            f"{figure(line['ratio'])} ({figure(low)} to {figure(high)})")


def only(lines, key):
    return ", ".join(sorted({str(line[key]) for line in lines if key in line}))


def trips(lines, regime):
    """What the probes before and after the rounds of a regime said."""
    ns = [line[k] for line in lines if line.get("regime") == regime
          for k in ("rtt_before_ns", "rtt_after_ns") if k in line]
    return f"{regime} {min(ns):.0f} to {max(ns):.0f} ns" if ns else ""


def head(target, lines):
    rounds = [line["rounds"] for line in lines if "rounds" in line] or [0]
    near = [trips(lines, r) for r in STEADY]
    return (f"`make bench-{target}` on {only(lines, 'machine')}; {only(lines, 'compiler')} -O2; "
            f"{only(lines, 'date')}; a round trip of a line between two cores: "
            f"{', '.join(text for text in near if text) or 'disturbed'}; {min(rounds)} to "
            f"{max(rounds)} rounds of a regime.")


def besides(by, keys, steady):
    """The cells of what a row has besides."""
    line = next(by[r] for r in steady if r in by)
    return "".join(f" {figure(line[k] * factor) if k in line else ''} |" for k, _, factor in keys)


def body(rows, more):
    columns = [r for r in STEADY if any(r in by for by in rows.values())]
    heads = " | ".join(f"{r}: ours | theirs | ratio" for r in columns)
    out = [f"| what | peer | {heads} |" + "".join(f" {name} |" for _, name, _ in more),
           "|---|---|" + "---|---|---|" * len(columns) + "---|" * len(more)]
    disturbed = []
    for (name, peer, unit), by in rows.items():
        if not any(r in by for r in columns):
            disturbed.append(name)
            continue
        cells = " | ".join(cell(by.get(r)) for r in columns)
        out.append(f"| {name}, {unit} | {peer or ''} | {cells} |" + besides(by, more, columns))
    if disturbed:
        names = "; ".join(dict.fromkeys(disturbed))
        out += ["", f"Disturbed in every round, so not shown: {names}."]
    return out


def skipped(lines):
    why = {}
    for line in lines:
        if "skipped" in line:
            why.setdefault((line["peer"], line["skipped"]), []).append(line["bench"])
    return [f"Not compared: {peer}: {text} ({len(names)} rows)."
            for (peer, text), names in sorted(why.items())]


def table(target, lines):
    rows = rows_of(lines)
    return "\n".join([head(target, lines), ""] + body(rows, BESIDES.get(target, ())) +
                     [""] + skipped(lines)).rstrip()


def inner(folder, target):
    """The table that stands in the folder, with the lines around it."""
    with open(os.path.join(folder, "tables", target + ".md"), encoding="utf-8") as f:
        found = re.search(rf"<!-- {target} -->\n(.*?)<!-- end -->", f.read(), re.DOTALL)
    return found.group(1) if found else ""


def redraw(folder, target):
    """Draw the chart of the table that stands in the folder. True if it could be drawn."""
    made = bench_charts.chart(target, {name: inner(folder, name) for name in TARGETS})
    if made is None:
        print(f"{target}: the table has no number for a chart")
        return False
    with open(os.path.join(folder, "charts", target + ".svg"), "w", encoding="utf-8") as f:
        f.write(made)
    return True


def rewrite(runs, folder, target):
    """Write the table again out of the lines of a run, if there are any. True if they are bad."""
    path, page = os.path.join(runs, target + ".jsonl"), os.path.join(folder, "tables",
                                                                     target + ".md")
    if not os.path.exists(path):
        print(f"{target}: no {path}: the table is left as it is")
        return False
    lines = lines_of(path)
    if any(line.get("quick") for line in lines):
        print(f"{target}: {path} is of a quick run: the table is left as it is")
        return True
    if not any(line.get("regime") in STEADY for line in lines if is_shown(line)):
        print(f"{target}: {path}: every round was disturbed: the table is left as it is")
        return True
    with open(page, encoding="utf-8") as f:
        text = f.read()
    made = table(target, lines)
    mark = re.compile(rf"(<!-- {target} -->\n).*?(<!-- end -->)", re.DOTALL)
    with open(page, "w", encoding="utf-8") as f:
        f.write(mark.sub(lambda m: m.group(1) + made + "\n" + m.group(2), text))
    print(f"{target}: {made.count(chr(10))} lines")
    return False


def main(runs, folder, *targets):
    bad = False
    for target in targets or TARGETS:
        bad |= rewrite(runs, folder, target)
        bad |= not redraw(folder, target)
    return bad


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
