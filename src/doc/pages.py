#!/usr/bin/env python3
"""Make documentation out of the comments of the headers.

    pages.py html FOLDER   an HTML page for each section, lists of all names, a search by any word
    pages.py man FOLDER    man pages of section 3: one for each group of declarations, and dlpipe.3
    pages.py api           the page examples/API.md, on stdout: each call with a line
    pages.py stubs         examples/python/dlpipe.pyi, on stdout: the descs, for editors
    pages.py names         "KIND NAME" for each documented name, on stdout, for tests

It runs in the folder that holds the headers. It needs nothing but Python's standard library.

A header is read from its first line to its implementation, and then its history and its licence. A
section begins with a line ">>name TITLE" of a comment. In a section a comment directly above
declarations describes them. Every other comment is text of the section.
"""
import html
import json
import keyword
import os
import re
import sys
import textwrap

HEADERS = ["dlpipe.h", "dlpipe_shm.h", "dlpipe_s3.h"]
HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"call": "Calls", "callback": "Types of callbacks", "struct": "Structs", "type": "Types",
         "constant": "Constants", "macro": "Macros"}


class Group:
    """Declarations that stand together, and the comment above them. Without code it is text."""

    def __init__(self, section, doc, code):
        self.section, self.doc, self.code = section, doc, code
        self.names = []   # (kind, name), the first name is the page's anchor
        self.fields = []  # (struct, field)
        self.texts = {}   # name: what the rest of its own line says
        self.members = ""  # what stands in the braces of a struct

    def lead(self):
        return self.names[0][1] if self.names else ""

    def summary(self):
        return first_sentence(self.doc)


class Section:
    def __init__(self, header, name, title):
        self.header, self.name, self.title = header, name, title
        self.groups = []
        self.part = ""  # heading of the contents above it


# ---- reading -------------------------------------------------------------------------------------

ANCHOR = re.compile(r"^ +>>([a-z][a-z0-9-]*) +(\S.*?)(?: \*/)?$")


def public_lines(path):
    """The lines of a header without its implementation."""
    with open(path) as f:
        lines = f.read().split("\n")
    begin = next(i for i, s in enumerate(lines)
                 if re.match(r"#if defined\(DLPIPE_IMPLEMENTATION\).*_DONE\)$", s))
    while lines[begin - 1].strip():
        begin -= 1
    end = max(i for i, s in enumerate(lines) if s == "#endif /* DLPIPE_IMPLEMENTATION */")
    return lines[:begin] + [""] + lines[end + 1:]


def depth_of(code):
    """How many braces are open behind some lines of code. That of extern "C" does not count."""
    depth = 0
    for line in bare_code("\n".join(code)).split("\n"):
        if not line.startswith('extern "C"'):
            depth = max(0, depth + line.count("{") - line.count("}"))
    return depth


def pieces(lines):
    """Yield ("comment", lines) and ("code", lines); an empty line between two yields ("", [])."""
    i = 0
    while i < len(lines):
        j = i + 1
        if lines[i].startswith("/*"):
            while "*/" not in lines[j - 1]:
                j += 1
            yield "comment", lines[i:j]
        elif lines[i].strip():
            while j < len(lines) and (depth_of(lines[i:j]) > 0 or
                                      lines[j].strip() and not lines[j].startswith("/*")):
                j += 1
            yield "code", lines[i:j]
        else:
            yield "", []
        i = j


def inner(comment):
    """The text of a comment, indented as its lines are, by three columns."""
    text = "\n".join(comment)
    text = text[2:text.index("*/")].rstrip()
    text = re.sub(r"^ -{20,}\n", "", text)
    return (" " * 2 + text).split("\n")


def declarations(code):
    """Cut code into declarations: lists of lines. Conditions, includes and bodies are left out."""
    i = 0
    while i < len(code):
        line, j = code[i], i + 1
        if line.startswith("#define"):
            while code[j - 1].endswith("\\"):
                j += 1
            yield code[i:j]
        elif line.startswith("#") or line.startswith('extern "C"') or line == "}":
            while code[j - 1].endswith("\\"):
                j += 1
        elif line.startswith(("DLPI_INLINE", "static inline")):  # its body is left out
            while "{" not in code[j - 1]:
                j += 1
            head = "\n".join(code[i:j])
            while depth_of(code[i:j]) > 0:
                j += 1
            head = head[:head.index("{")].rstrip() + ";"
            yield head.replace("DLPI_INLINE", "static inline").split("\n")
        else:
            while j < len(code) and (depth_of(code[i:j]) > 0 or not re.search(
                    r";\s*$", bare_code("\n".join(code[i:j])))):
                j += 1
            while j < len(code) and "\n".join(code[i:j]).count("/*") > \
                    "\n".join(code[i:j]).count("*/"):
                j += 1
            yield code[i:j]
        i = j


def bare_code(text):
    """Code with spaces in place of its comments, also of one that has no end yet."""
    return re.sub(r"/\*.*?(?:\*/|\Z)", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def without_nested(body):
    """The members of a struct, without those of structs and unions inside. Lines stay."""
    out, depth = [], 0
    for c in body:
        depth += (c == "{") - (c == "}")
        out.append(c if depth == 0 or c == "\n" else " ")
    return "".join(out)


def name_all(group, lists):
    """Find the names that the declarations of a group give."""
    for lines in group.code:
        text = "\n".join(lines)
        bare = bare_code(text)
        if m := re.match(r"#define (\w+)(\([\w, .]*\))?", bare):
            if re.match(r"\(\w+\)", m[2] or "") and re.search(r"\n +" + m[2][1:-1] + r"\(", bare):
                lists[m[1]] = text
            elif n := re.search(r"(DLP_\w*)##name = ", bare):
                lists[m[1]] = n[1]
            if m[1].startswith(("DLP_", "DLPIPE_", "dlp_")) and bare[m.end():].strip():
                group.names.append(("macro" if m[2] or m[1] in lists else "constant", m[1]))
        elif m := re.match(r"typedef struct (\w+) \{(.*)\} (\w+);", bare, re.S):
            group.names.append(("struct", m[3]))
            members = without_nested(m[2])
            members = re.sub(r"\((\*\w+)\)\([^)]*\)", r" \1 ", members)
            group.members = m[2]
            for f in re.finditer(r"[\s*](\w+)(?:\[[^\]]*\])*\s*(?=[,;])", members):
                group.fields.append((m[3], f[1]))
        elif m := re.match(r"typedef struct (\w+) (\w+);", bare):
            group.names.append(("type", m[2]))
        elif m := re.match(r"typedef .*?\(\*(\w+)\)\(", bare, re.S):
            group.names.append(("callback", m[1]))
        elif m := re.match(r"typedef .*?(\w+);", bare, re.S):
            group.names.append(("type", m[1]))
        elif m := re.match(r"enum \{(.*)\};", bare, re.S):
            for n in re.finditer(r"(?:^|[{,])\s*(DLP_\w+)\b(?!\()", m[1]):
                group.names.append(("constant", n[1]))
        elif m := re.match(r"(?:DLPDEF|static inline)[^(]*?(\w+)\(", bare):
            group.names.append(("call", m[1]))
    group.names = [n for n in group.names if not n[1].lower().startswith("dlpi_")
                   and not n[1].endswith("_")]


def listed(lists, text):
    """The constants of an enum that a list of rows NAME(X) makes: [(name, value, words)]."""
    rows = prefix = None
    for name, what in lists.items():
        if re.search(r"\b" + name + r"\b", text):
            rows, prefix = (what, prefix) if "\n" in what else (rows, what)
    if m := re.search(r"#define \w+\(name.*?(DLP_\w*)##name", text):
        prefix = m[1]
    if rows is None or prefix is None:
        return []
    found = []
    for m in re.finditer(r"\n +\w+\((\w+), (-?\d+)((?:[^()\n]|\([^()]*\)|\\\n)*)\)", rows):
        after = rows[m.end():].split("\n")[0]
        words = re.findall(r'"((?:[^"\\]|\\.)*)"', m[3])
        remark = re.search(r"/\*(.*?)\*/", after)
        found.append((prefix + m[1], m[2], [w for w in words if w] or
                      ([remark[1].strip()] if remark else [])))
    return found


def read(path, seen):
    """The sections of a header. Those that an earlier header has are left out."""
    sections, part, parts, lists = [], "", {}, {}
    current = Section(path, "", "")
    comment, skipping = None, False

    def keep_text():
        nonlocal comment
        if comment and not skipping and any(s.strip() for s in comment):
            current.groups.append(Group(current, comment, []))
        comment = None

    in_contents = False
    for what, lines in pieces(public_lines(path)):
        if what == "comment":
            keep_text()
            comment = []
            for line in inner(lines):
                m = ANCHOR.match(line)
                if in_contents or (m and m[1] == "contents"):
                    if line.strip() and not line.strip().startswith(">>"):
                        part = line.strip().rstrip(":")
                    elif m and m[1] != "contents":
                        parts[m[1]] = part
                    in_contents = bool(line.strip())
                elif m:
                    keep_text()
                    skipping = m[1] in seen
                    current = Section(path, m[1], m[2])
                    current.part = parts.get(m[1], "")
                    if not skipping:
                        seen.add(m[1])
                        sections.append(current)
                    comment = []
                else:
                    comment.append(line)
            continue
        if what == "":
            keep_text()
            continue
        group = Group(current, comment or [], list(declarations(lines)))
        name_all(group, lists)
        rows = listed(lists, "\n".join(lines))
        if rows and not skipping:
            code = ["enum {"]
            for name, value, words in rows:
                group.names.append(("constant", name))
                group.texts[name] = (value, words)
                code.append("    %s = %s,%s" % (name, value, words and
                                                " /* %s */" % "; ".join(words) or ""))
            group.code = [code + ["};"]]
            group.names = [n for n in group.names if n[0] != "macro"]
            if not group.doc and current.groups and not current.groups[-1].code:
                group.doc = current.groups.pop().doc  # the text above a list is about it
        if group.names and not skipping and current.name:
            group.code = [d for d in group.code if not re.match(
                r"(#define |.*\b)(DLPI_|dlpi_)\w+\(", d[0]) or re.search(r"\bdlp_\w+\(", d[0])]
            current.groups.append(group)
            comment = None
        elif not skipping:
            comment = None
    keep_text()
    return sections


# ---- text ----------------------------------------------------------------------------------------

def first_sentence(doc):
    text = " ".join(s.strip() for s in doc if s.strip())
    m = re.match(r"(.*?(?<![ .])[.!?:])(?= |$)", text)
    text = m[1] if m else text
    return text[:-1] + "." if text.endswith(":") else text


def indent_of(line):
    return len(line) - len(line.lstrip())


def is_row(line):
    """A row of a table begins as far left as text does, and has three spaces inside."""
    return re.search(r"\S {3,}\S", line) and not ITEM.match(line)


ITEM = re.compile(r"^   ([*]|\d{1,2}) +(?=\S)")


def blocks(doc):
    """Cut the lines of a comment into ("p", text), ("pre", lines) and ("li", (mark, lines)).

    Lines that are further in than the comment are preformatted, as tables are. The lines of an item
    of a list are a comment of their own. A paragraph ends at an empty line, and where the next word
    would have fitted."""
    i = 0
    while i < len(doc):
        line = doc[i]
        if not line.strip():
            i += 1
        elif m := ITEM.match(line):
            hang, begin, i = m.end() - 3, i, i + 1
            while i < len(doc) and doc[i].strip() and indent_of(doc[i]) > 3:
                i += 1
            yield "li", (m[1], ["   " + line[m.end():]] + [s[hang:] for s in doc[begin + 1:i]])
        elif indent_of(line) > 3 or is_row(line):
            begin = i
            while i < len(doc) and (indent_of(doc[i]) > 3 or is_row(doc[i]) or
                                    not doc[i].strip() and i + 1 < len(doc) and
                                    indent_of(doc[i + 1]) > 4):
                i += 1
            cut = min(indent_of(s) for s in doc[begin:i] if s.strip())
            yield "pre", [s[cut:] for s in doc[begin:i]]
        else:
            text, i = [line.strip()], i + 1
            while i < len(doc) and doc[i].strip() and indent_of(doc[i]) <= 3 and \
                    not ITEM.match(doc[i]) and not is_row(doc[i]) and \
                    len(doc[i - 1]) + 1 + len(doc[i].split()[0]) > 97:
                text.append(doc[i].strip())
                i += 1
            yield "p", " ".join(text)


def rows_of(lines):
    """The rows of a table, each as one text: a line that is further in goes on with a row."""
    rows = []
    for line in lines:
        if line.strip() and (not rows or not line.startswith("  ")):
            rows.append(line)
        elif line.strip():
            rows[-1] += " " + line
    return [re.sub(r"\s+", " ", r).strip() for r in rows]


# ---- HTML ----------------------------------------------------------------------------------------

def shown(group):
    """The lines of a group's declarations, without marks that say nothing to a reader."""
    lines = []
    for code in group.code:
        text = re.sub(r"^(?:DLPDEF DLPI_LESS_\w+\n|#e.*\n)+", "", "\n".join(code))
        if text.startswith("DLPDEF "):  # the lines after the first go left with it
            text = re.sub(r"\n {7}", "\n", text[7:])
        lines += text.split("\n")
    return lines


class Pages:
    def __init__(self, sections):
        self.sections = sections
        self.at = {}  # name: page and anchor
        for s in sections:
            self.at[">>" + s.name] = s.name + ".html"
            for g in s.groups:
                for _, name in g.names:
                    self.at[name] = "%s.html#%s" % (s.name, name)
                for struct, field in g.fields:
                    self.at[struct + "." + field] = "%s.html#%s.%s" % (s.name, struct, field)
        self.here = ()  # names that are being declared

    def link(self, text, shown=None):
        return '<a href="%s">%s</a>' % (self.at[text], shown or html.escape(text, quote=False))

    def linked(self, text):
        """Escape a text, and link the names in it. A name that is being declared is not linked."""
        def one(m):
            if m[0] in self.at and m[0] not in self.here:
                return self.link(m[0])
            if m[1] in self.at and m[1] not in self.here:  # a struct and what is no field of it
                return self.link(m[1]) + html.escape(m[0][len(m[1]):], quote=False)
            return html.escape(m[0], quote=False)
        return re.sub(r">>[a-z][a-z0-9-]*|\b((?:dlp|DLP)_\w+)\b(?:\.[a-z]\w*)?|[^\w>]+|\w+|>",
                      one, text)

    def code(self, lines):
        """Code with its names linked and its comments marked."""
        text = "\n".join(lines)
        out = []
        for i, s in enumerate(re.split(r"(/\*.*?\*/|//[^\n]*)", text, flags=re.S)):
            out.append('<span class="c">%s</span>' % self.linked(s) if i % 2 else self.linked(s))
        return "".join(out)

    def declared(self, group):
        self.here = {n for _, n in group.names}
        text = self.code(shown(group))
        for struct, field in group.fields:
            text = re.sub(r"(?<![\w.\">#])%s(?=[\w\[\]]*[,;)]|(?:\[[^]]*\])+[,;])" % field,
                          '<span id="%s.%s">%s</span>' % (struct, field, field), text, count=1)
        self.here = ()
        return '<pre class="code">%s</pre>' % text

    def codes(self, group):
        """The constants that a list of rows makes."""
        most = max(len(words) for _, words in group.texts.values())
        rows = ["<tr><td><code>%s</code></td><td>%s</td>%s</tr>" %
                (n, value, "".join("<td>%s</td>" % self.linked(w)
                                   for w in (words + [""] * most)[:most]))
                for n, (value, words) in group.texts.items()]
        return '<table>%s</table>' % "".join(rows)

    def text(self, doc):
        out, items = [], False
        for what, s in blocks(doc):
            if items and what != "li":
                out.append("</ul>")
                items = False
            if what == "p":
                out.append("<p>%s</p>" % self.linked(s))
            elif what == "pre":
                out.append("<pre>%s</pre>" % self.code(s))
            else:
                if not items:
                    out.append('<ul>')
                    items = True
                mark = "" if s[0] == "*" else "<b>%s</b> " % s[0]
                body = re.sub(r"^<p>(.*?)</p>", r"\1", self.text(s[1]), flags=re.S)
                out.append("<li%s>%s%s</li>" % (mark and ' class="n"', mark, body))
        return "\n".join(out + ["</ul>"] * items)

    def section(self, s):
        out = ["<h1>%s</h1>" % title_of(s),
               '<p class="of"><code>&gt;&gt;%s</code> of <code>%s</code></p>' % (s.name, s.header)]
        calls = [(k, n) for g in s.groups for k, n in g.names if k != "constant"]
        if len(calls) > 1:
            out.append('<p class="all">%s</p>' % " ".join(self.link(n) for _, n in calls))
        seen = set()  # a call may be a macro, too
        for g in s.groups:
            if not g.code:
                out.append(self.text(g.doc))
                continue
            ids = "".join('<a id="%s"></a>' % n for _, n in g.names if n not in seen)
            seen.update(n for _, n in g.names)
            out.append('<div class="group">%s%s%s</div>' %
                       (ids, (self.codes if g.texts else self.declared)(g), self.text(g.doc)))
        return "\n".join(out)

    def names(self):
        out = ["<h1>All names</h1>"]
        kinds = list(KINDS.items())
        out.append('<p class="all"><a href="#codes">Codes</a> %s</p>' %
                   " ".join('<a href="#%s">%s</a>' % k for k in kinds))
        out.append('<h2 id="codes">Codes</h2><table>')
        for s in self.sections:
            for g in s.groups:
                if s.name == "errors" and g.texts:
                    for n, (value, words) in g.texts.items():
                        out.append("<tr><td><code>%s</code></td><td>%s</td><td>%s</td></tr>" %
                                   (self.link(n), value, "; ".join(map(self.linked, words))))
        out.append("</table>")
        for kind, title in kinds:
            out.append('<h2 id="%s">%s</h2><table>' % (kind, title))
            rows = {n: g for s in self.sections for g in s.groups for k, n in g.names if k == kind}
            for n in sorted(rows):
                out.append("<tr><td><code>%s</code></td><td>%s</td></tr>" %
                           (self.link(n), self.linked(rows[n].summary())))
            out.append("</table>")
        return "\n".join(out)

    def index(self):
        out = ["<h1>dlpipe %s</h1>" % version(), "<p>%s</p>" % html.escape(
            "Data-loading pipelines for C11: three headers, no dependencies. Each page is a "
            "section of a header. The search field finds names and words of all pages."),
            '<p><a href="names.html">All names</a>: calls, structs, codes, constants, macros.</p>']
        for header in HEADERS:
            out.append('<h2><code>%s</code></h2>' % header)
            part = None
            for s in (s for s in self.sections if s.header == header):
                if s.part != part:
                    out += ["</table>"] * (part is not None)
                    part = s.part
                    title = part if part != "The implementation" else "At the end of the header"
                    out += ["<h3>%s</h3>" % html.escape(title)] * (title not in ("", "search for"))
                    out.append('<table class="contents">')
                out.append("<tr><td>%s</td><td>%s</td></tr>" %
                           (self.link(">>" + s.name, s.name), title_of(s)))
            out.append("</table>")
        return "\n".join(out)

    def page(self, title, body, here):
        menu = ['<a href="index.html">Contents</a>', '<a href="names.html">All names</a>']
        for header in HEADERS:
            menu.append("<b>%s</b>" % header)
            for s in (s for s in self.sections if s.header == header):
                mark = ' class="here"' if s.name == here else ""
                menu.append('<a%s href="%s.html">%s</a>' % (mark, s.name, s.name))
        return PAGE % {"title": html.escape(title), "menu": "\n".join(menu), "body": body}

    def found_by(self):
        """What the search knows: [name, kind, page and anchor, words]."""
        rows = []
        for s in self.sections:
            rows.append([s.name, "section", s.name + ".html", title_of(s, False)])
            for g in s.groups:
                for kind, name in g.names:
                    words = "; ".join(g.texts[name][1] if name in g.texts else [g.summary()])
                    rows.append([name, kind, self.at[name], words])
                for struct, field in g.fields:
                    rows.append([struct + "." + field, "field",
                                 "%s.html#%s.%s" % (s.name, struct, field), remark_of(g, field)])
                at = "%s.html%s" % (s.name, "#" + g.lead() if g.names else "")
                for text in texts_of(g.doc):
                    rows.append(["", s.name, at, text])
        return rows


def texts_of(doc):
    """The paragraphs, items and rows of a comment, each as one text."""
    for what, s in blocks(doc):
        if what == "li":
            yield from texts_of(s[1])
        else:
            yield from rows_of(s) if what == "pre" else [s]


def remark_of(group, field):
    """What the comment beside a field says."""
    text = "\n".join(s for d in group.code for s in d)
    m = re.search(r"\b%s\b(?:\[[^\]]*\])*(?:\)\([^;]*\))?[^;/]*;[ \n]*/\*(.*?)\*/" % field, text,
                  re.S)
    return re.sub(r"\s+", " ", m[1]).strip() if m else ""


# What stays as it is in a title, which the header writes in capitals.
PROPER = {w.upper(): w for w in
          "PyTorch CUDA OpenCL GPUs CPU IDX CIFAR npy JSONL CSV WebDataset SPSC MPSC MIT S3 T "
          "Amazon's".split()}


def title_of(s, escaped=True):
    words = re.sub(r"[A-Z0-9']+\b(?![.\w])", lambda m: PROPER.get(m[0], m[0].lower()), s.title)
    title = words[:1].upper() + words[1:]
    return html.escape(title, quote=False) if escaped else title


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>%(title)s - dlpipe</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="stylesheet" href="pages.css">
</head><body><header><a class="home" href="index.html">dlpipe</a>
<input id="q" type="search" placeholder="Search names and words" autocomplete="off"
 aria-label="Search"><div id="found" role="listbox"></div></header>
<div class="two"><nav>%(menu)s</nav><main>
%(body)s
</main></div><script src="words.js"></script><script src="pages.js"></script></body></html>
"""


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def html_pages(sections, folder):
    pages = Pages(sections)
    os.makedirs(folder, exist_ok=True)
    for s in sections:
        write(os.path.join(folder, s.name + ".html"),
              pages.page(s.name, pages.section(s), s.name))
    write(os.path.join(folder, "names.html"), pages.page("All names", pages.names(), ""))
    write(os.path.join(folder, "index.html"), pages.page("Contents", pages.index(), ""))
    rows = ",\n".join(json.dumps(r, separators=(",", ":")) for r in pages.found_by())
    write(os.path.join(folder, "words.js"), "const WORDS = [\n%s\n];\n" % rows)
    for name in ("pages.css", "pages.js"):
        with open(os.path.join(HERE, name)) as f:
            write(os.path.join(folder, name), f.read())


# ---- man pages -----------------------------------------------------------------------------------

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\n".join("\\&" + s if s[:1] in ".'" else s for s in text.split("\n"))


def man_text(doc):
    out = []
    for what, s in blocks(doc):
        if what == "p":
            out += [".PP", roff(s)]
        elif what == "li":
            out += [".IP %s 4" % ("\\(bu" if s[0] == "*" else s[0])]
            inside = man_text(s[1])
            out += [".IP" if x == ".PP" else x for x in inside]
        else:
            out += [".PP", ".nf", roff("\n".join(s)), ".fi"]
    return out[out[:1] == [".PP"]:]  # none directly behind a heading


def man_page(name, what, header, body):
    return "\n".join(['.TH "%s" 3 "" "dlpipe %s" "dlpipe"' % (name, version()), ".SH NAME",
                      "%s \\- %s" % (roff(name), roff(what))] + body) + "\n"


def man_pages(sections, folder):
    os.makedirs(folder, exist_ok=True)
    for s in sections:
        for g in s.groups:
            if not g.names:
                continue
            doc, returns = list(g.doc), []
            at = next((i for i, x in enumerate(doc) if x.startswith("   Returns")), None)
            if at is not None and any(k == "call" for k, _ in g.names):
                doc, returns = doc[:at], doc[at:]
            body = [".SH SYNOPSIS", ".nf", ".B #include <%s>" % s.header, ".PP",
                    roff("\n".join(shown(g))), ".fi"]
            if doc:
                body += [".SH DESCRIPTION"] + man_text(doc)
            if returns:
                body += [".SH RETURN VALUE"] + man_text(returns)
            body += [".SH SEE ALSO", ".BR dlpipe (3)", ".br",
                     roff("%s: >>%s (%s)" % (s.header, s.name, title_of(s, False)))]
            names = [n for _, n in g.names]
            what = g.summary().rstrip(".") or title_of(s, False)
            write(os.path.join(folder, names[0] + ".3"),
                  man_page(names[0], what, s.header, body))
            for other in names[1:]:
                write(os.path.join(folder, other + ".3"), ".so man3/%s.3\n" % names[0])
    body = []
    for s in sections:
        text = [x for g in s.groups if not g.code for x in man_text(g.doc)]
        calls = [n for g in s.groups for k, n in g.names if k != "constant"]
        if s.name.endswith("licence"):
            continue
        body += [".SH %s (>>%s of %s)" % (roff(s.title), s.name, s.header)] + text
        if calls:
            body += [".PP", "Pages: " + roff(", ".join(calls)) + "."]
    write(os.path.join(folder, "dlpipe.3"),
          man_page("dlpipe", "data-loading pipelines for C11", "dlpipe.h", body))


# ---- examples/API.md -----------------------------------------------------------------------------

def api(sections):
    out = ["# All calls of dlpipe %s" % version(), "",
           "`make headers` writes this page, out of the comments of the headers. "
           "`make docs` makes pages of the whole text, with a search, and man pages.", ""]
    for header in HEADERS:
        out += ["## %s" % header, ""]
        for s in (s for s in sections if s.header == header):
            rows = [(n, g) for g in s.groups for k, n in g.names if k == "call"]
            if rows:
                out += ["**%s** (`>>%s`)" % (title_of(s, False), s.name), "",
                        "| call | what it does |", "|---|---|"]
                out += ["| `%s` | %s |" % (n, re.sub(r"([|*])", r"\\\1", g.summary()))
                        for n, g in rows]
                out.append("")
    return "\n".join(out).rstrip() + "\n"


# ---- examples/python/dlpipe.pyi ------------------------------------------------------------------

STUBS = """# What editors and type checkers know of dlpipe.py. "make headers" writes this file.
from typing import Any, Iterator, List, Sequence, TypedDict, Union

%s
structs: dict[str, Any]
lib: Any
INDEX: int
VALID: int
LENGTHS: int
OFFSETS: int
LIST: int
NUMBER: int

class Error(Exception):
    code: int

def dtype(name: str) -> int: ...
def field(name: str, kind: str, *shape: int, ragged: bool = ...) -> Any: ...
def fill(desc: Any, values: dict[str, Any], keep: list[Any], above: str = ...) -> Any: ...

class Source:
    def __init__(self, kind: str, *,%s) -> None: ...
    def close(self) -> None: ...

class Tensor:
    def __dlpack__(self, stream: Any = ..., **_: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Batch:
    count: int
    epoch: int
    sequence: int
    names: List[str] # Batch.list is another list
    def tensor(self, name: str) -> Tensor: ...
    def rows(self, what: int, name: Union[str, None] = ...) -> Tensor: ...
    def __getitem__(self, name: str) -> Any: ...
    def lengths(self, name: str) -> Any: ...
    @property
    def index(self) -> Any: ...
    @property
    def list(self) -> Any: ...
    @property
    def number(self) -> Any: ...

class Pipe:
    def __init__(self, nodes: Sequence[dlp_node], *,%s) -> None: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Pipe: ...
    def __exit__(self, *_: Any) -> None: ...
    def state(self, batch: Union[Batch, None] = ...) -> bytes: ...
    def explain(self) -> str: ...
    def close(self) -> None: ...

class Loader(Pipe):
    def __init__(self, *,%s) -> None: ...
"""


def python_members(group):
    """[(member, its type in Python, its struct or "")]"""
    found = []
    body = re.sub(r"union \{(.*?)\};", r"\1", group.members, flags=re.S)
    for part in re.sub(r"\((\*\w+)\)\([^)]*\)", r" \1 ", body).split(";"):
        m = re.match(r"(?:const )?(?:struct )?(\w+) (.*)", " ".join(part.split()))
        for one in m[2].split(",") if m else []:
            name = re.search(r"(\w+)\s*(?:\[|$)", one)[1]
            if "*" not in one and m[1].startswith("dlp_") and not m[1].endswith("_fn"):
                kind = "int" if m[1] in ("dlp_dtype", "dlp_stage") else m[1]
            elif "*" in one or m[1].endswith("_fn"):
                kind = "str" if m[1] == "char" and one.count("*") == 1 else "Any"
            else:
                kind = "float" if m[1] in ("float", "double") else "int"
            found.append((name, "Any" if "[" in one else kind, m[1]))
    return found


def folded(begin, parts, end, indent=4):
    """The parts, with commas, in lines of their own below the line that begins them."""
    lines = textwrap.wrap(", ".join(p.replace(" ", "\0") for p in parts), 80,
                          break_long_words=False, break_on_hyphens=False)
    return begin + "".join("\n" + " " * indent + x.replace("\0", " ") for x in lines) + end


def stubs(sections):
    groups = [g for s in sections for g in s.groups if s.header == HEADERS[0]]
    of = {n: g for g in groups for k, n in g.names if k == "struct"}
    of.update({n: of["dlp_indexed_desc"] for n in ("dlp_lines_desc", "dlp_tar_desc")})
    sources = ["dlp_%s_desc" % n for n in ("tokens", "files", "arrays", "lines", "tar")]
    wanted, at = ["dlp_loader_desc", "dlp_pipe_desc", "dlp_node"] + sources, 0
    while at < len(wanted):
        for _, _, b in python_members(of[wanted[at]]):
            if b in of and of[b].members and b not in wanted:
                wanted.append(b)
        at += 1
    classes = ["%s: int" % n for n in sorted({n for g in groups for k, n in g.names
                                              if k == "constant" and n.startswith("DLP_")})]
    for name in sorted(wanted):
        members = ["%r: %s" % (n, '"%s"' % k if k in of else k)
                   for n, k, _ in python_members(of[name])]
        classes.append(folded("%s = TypedDict(%r, {" % (name, name), members, "}, total=False)"))

    def arguments(*names): # a word of Python is given as **{"async": ...}
        rows = {n: k for name in names for n, k, _ in python_members(of[name])
                if not keyword.iskeyword(n)}
        return folded("", ["%s: %s = ..." % r for r in rows.items()], "", 8)
    return STUBS % ("\n".join(classes), arguments(*sources), arguments("dlp_pipe_desc"),
                    arguments("dlp_loader_desc"))


def version():
    with open(HEADERS[0]) as f:
        return re.search(r" - v([0-9.]+) - ", f.readline())[1]


def main():
    seen, sections = set(), []
    for header in HEADERS:
        sections += read(header, seen)
    what = sys.argv[1:2]
    if what == ["html"] and len(sys.argv) == 3:
        html_pages(sections, sys.argv[2])
    elif what == ["man"] and len(sys.argv) == 3:
        man_pages(sections, sys.argv[2])
    elif what == ["api"]:
        sys.stdout.write(api(sections))
    elif what == ["stubs"]:
        sys.stdout.write(stubs(sections))
    elif what == ["names"]:
        for s in sections:
            for g in s.groups:
                for kind, name in g.names:
                    print(kind, name)
                for struct, field in g.fields:
                    print("field", struct + "." + field)
    else:
        sys.exit(__doc__)


main()
