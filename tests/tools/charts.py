"""Are the charts of the benchmarks true, and can they be read? charts.py FOLDER

FOLDER has bench_charts.py, tables/ and charts/. The tables are read here by their bars alone, as
Markdown reads them, so that a fault of bench_charts.py cannot hide itself. Prints each fault.

  cell     bench_charts.py reads a cell otherwise
  bar      the number at a bar is not that of the cell that the bar's title names
  missing  a bar that bench_charts.py describes has no number in any table
  raw      a text is a raw name of a test
  way      a chart does not say whether long or short bars are better
  dark     a picture has no colours for a dark page
  room     a text leaves the picture, or lies on another text, a bar or an axis
  one      two bars show one thing with different numbers
"""
import glob
import os
import re
import sys
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"


def table_of(text):
    """The rows of a table as Markdown has them: a dict of column and cell for each."""
    rows, names, regime = [], None, ""
    for line in text.splitlines():
        if not line.startswith("| "):
            continue
        cells = [c.strip().strip("`") for c in line.strip()[1:-1].split("|")]
        if names is None:
            names = []
            for c in cells:
                regime = c.split(":")[0] + ": " if ": ours" in c else regime
                names.append(regime + c if c in ("theirs", "ratio") else c)
        else:
            rows.append(dict(zip(names, cells)))
    return rows


def between(page, name):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", page, re.DOTALL).group(1)


def bars_of(picture):
    """Each bar's title, and the number behind it."""
    parts = list(picture)
    for i, part in enumerate(parts):
        title = part.find(SVG + "title")
        if title is not None:
            yield title.text, next(p.text for p in parts[i:] if p.tag == SVG + "text")


def boxes_of(picture):
    """Rectangles of texts (about), bars and axes: kind, words, left, top, right, bottom."""
    for part in picture:
        kind = part.get("class")
        if part.tag == SVG + "text":
            x, y, size = (float(part.get(k)) for k in ("x", "y", "font-size"))
            width = len(part.text) * size * (0.55 if part.get("font-weight") else 0.52)
            x -= width if part.get("text-anchor") == "end" else 0
            yield "text", part.text, x, y - 0.7 * size, x + width, y
        elif part.tag == SVG + "rect" and kind != "page":
            x, y, w, h = (float(part.get(k)) for k in ("x", "y", "width", "height"))
            yield "bar", "a bar", x, y, x + w, y + h
        elif kind == "axis":
            x, y, end = (float(n) for n in re.findall(r"[0-9.]+", part.get("d")))
            yield "axis", "an axis", x, y, x, end


def thing_of(title):
    """What a bar is of, whatever the benchmark calls it; None: only that one can show it."""
    table, row, peer, column = title.split("; ")
    size = re.search(r"workers \d+, prefetch \d+, item bytes \d+", row)
    who = "ours" if "ours" in column else peer.split("_")[0].split(",")[0]
    if size is None or not row.endswith("item/s"):
        return None
    return size.group(0), who, "_proc," in row, "beside" in row, "zeroed" in row


def words_of(row):
    return next(iter(row.values())).replace("`", "")


def faults_of_cells(name, mine, theirs):
    """Where bench_charts.py reads a table otherwise."""
    if len(mine) != len(theirs):
        yield f"{name}: cell: {len(theirs)} rows, the table has {len(mine)}"
    for ours, row in zip(mine, theirs):
        for key, cell in ours.items():
            if row.get(key) != cell:
                yield f"{name}: cell: {words_of(ours)}: {key}: {row.get(key)!r}, not {cell!r}"


def faults_of_words(name, drawn, words, spec):
    ways = sum("longer is better" in w or "shorter is better" in w for w in words)
    if ways != (1 if spec["unit"] else len(spec["panels"])):
        yield f"{name}: way: {ways} texts say which bars are better"
    for w in words:
        if re.search(r"[a-z0-9]_[a-z0-9]", w) and not re.search("decode_and_crop|io_uring", w):
            yield f"{name}: raw: {w}"
    if "prefers-color-scheme:dark" not in drawn:
        yield f"{name}: dark: no colours for a dark page"


def faults_of_bars(name, picture, tables, things):
    """Bars that differ from their tables. things: what each bar shows, with its numbers."""
    for title, number in bars_of(picture):
        table, row, peer, column = title.split("; ")
        cells = [r.get(column, "") for r in tables[table]
                 if words_of(r) == row and r.get("peer", "") == peer]
        if not any(c == number or c.startswith(number + " (") for c in cells):
            yield f"{name}: bar: {title}: {number}, the table has {cells}"
        if thing_of(title):
            things.setdefault(thing_of(title), set()).add(number)


def judged(folder, charts):
    texts, faults, things = {}, [], {}
    for path in sorted(glob.glob(os.path.join(folder, "tables", "*.md"))):
        name = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8") as f:
            texts[name] = between(f.read(), name)
    mine = {name: table_of(text) for name, text in texts.items()}
    theirs = {name: charts.parsed(text) for name, text in texts.items()}
    for name in texts:
        with open(os.path.join(folder, "charts", name + ".svg"), encoding="utf-8") as f:
            drawn = f.read()
        picture, spec = xml.fromstring(drawn), charts.CHARTS[name]
        words = [t.text or "" for t in picture.iter(SVG + "text")]
        faults += faults_of_cells(name, mine[name], theirs[name])
        faults += faults_of_words(name, drawn, words, spec)
        faults += [f"{name}: room: {fault}" for fault in crowded(picture)]
        faults += [f"{name}: missing: {b.label}, {b.name}" for b in spec["bars"]
                   if not any(c and charts.picked(theirs, name, c, "ours", False) for c in b.cells)]
        faults += faults_of_bars(name, picture, mine, things)
    return faults + [f"one: {thing}: {numbers}" for thing, numbers in things.items()
                     if len(numbers) > 1]


def crowded(picture):
    """Texts that leave the picture or lie on something."""
    boxes, width = list(boxes_of(picture)), float(picture.get("width"))
    for i, (kind, words, left, top, right, bottom) in enumerate(boxes):
        if kind != "text":
            continue
        if left < 8 or right > width - 8 or bottom > float(picture.get("height")):
            yield f"'{words}' leaves the picture"
        for j, (what, other, a, b, c, d) in enumerate(boxes):
            if i != j and left < c and a < right and top < d and b < bottom and \
                    (what != "text" or i < j):
                yield f"'{words}' lies on {other if what != 'text' else repr(other)}"


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import bench_charts
    found = judged(sys.argv[1], bench_charts)
    print("\n".join(found[:20]))
    print(f"{len(found)} faults of the charts")
    sys.exit(bool(found))
