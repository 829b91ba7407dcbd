"""Make the tables of tests/bench/README.md out of the lines of a run.

bench_tables.py FOLDER PAGE [TARGET...]

For each TARGET (all) with FOLDER/TARGET.jsonl, what stands in the page between "<!-- TARGET -->"
and "<!-- end -->" is written again: machine, probe and date of the run, and a row for each figure
with columns for each regime. Lines of a quick run are refused; rows of which nothing but
disturbed rounds are left, and peers that were skipped, are named below the table.
"""
import json
import os
import re
import sys

TARGETS = ("queue", "loader", "peers", "files", "order", "compose", "tokens", "crop")
# What tells rows of one name apart.
KEYS = ("workers", "producers", "prefetch", "item_bytes", "sharing", "until", "heap_mib",
        "persistent", "variant")
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
    if "ours" not in line or line["bench"] == "line_roundtrip":
        return False
    return not line["bench"].startswith(QUEUES) or line.get("peer") == "best"


def rows_of(lines):
    rows = {}
    for line in lines:
        if is_shown(line):
            rows.setdefault((label(line), line.get("peer"), line["unit"]), {})[
                line["regime"]] = line
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
    return f"{regime} {min(ns):.0f} to {max(ns):.0f} ns" if ns else f"{regime}: none"


def head(target, lines):
    rounds = [line["rounds"] for line in lines if "rounds" in line]
    return (f"`make bench-{target}` on {only(lines, 'machine')}; {only(lines, 'compiler')} -O2; "
            f"{only(lines, 'date')}; a round trip of a line between two cores: "
            f"{trips(lines, 'near')}, {trips(lines, 'far')}; {min(rounds)} to {max(rounds)} rounds "
            "of a regime.")


def body(rows):
    steady = ("near", "far", "single")
    columns = [r for r in steady if any(r in by for by in rows.values())]
    heads = " | ".join(f"{r}: ours | theirs | ratio" for r in columns)
    out = [f"| what | peer | {heads} |",
           "|---|---|" + "---|---|---|" * len(columns)]
    disturbed = []
    for (name, peer, unit), by in rows.items():
        if not any(r in by for r in columns):
            disturbed.append(name)
            continue
        cells = " | ".join(cell(by.get(r)) for r in columns)
        out.append(f"| {name}, {unit} | {peer or ''} | {cells} |")
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
    return "\n".join([head(target, lines), ""] + body(rows) + [""] + skipped(lines)).rstrip()


def main(folder, page, *targets):
    with open(page, encoding="utf-8") as f:
        text = f.read()
    bad = False
    for target in targets or TARGETS:
        path = os.path.join(folder, target + ".jsonl")
        mark = re.compile(rf"(<!-- {target} -->\n).*?(\n?<!-- end -->)", re.DOTALL)
        if not os.path.exists(path) or not mark.search(text):
            print(f"{target}: no {path}, or no place for it in {page}: left as it is")
            continue
        lines = lines_of(path)
        if any(line.get("quick") for line in lines):
            print(f"{target}: {path} is of a quick run: left as it is")
            bad = True
            continue
        made = table(target, lines)
        text = mark.sub(lambda m: m.group(1) + made + "\n" + m.group(2).lstrip("\n"), text)
        print(f"{target}: {made.count(chr(10))} lines")
    with open(page, "w", encoding="utf-8") as f:
        f.write(text)
    return bad


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
