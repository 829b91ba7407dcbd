/* The search of the pages of "make docs". WORDS has rows [name, kind, page, words]; rows of text
   have no name, and their kind is the section. All typed words must be in a row. "?q=..." in the
   address of a page searches, too. */
"use strict";
const field = document.getElementById("q");
const found = document.getElementById("found");
const LOW = WORDS.map(row => [row[0].toLowerCase(), (row[0] + " " + row[3]).toLowerCase()]);
const MOST = 60;
let at = -1;

/* How well a row fits: 0 is not at all. Names come first, and of these the exact one. */
function fit(i, words, whole) {
    const name = LOW[i][0];
    if (!words.every(w => LOW[i][1].includes(w))) return 0;
    if (name === whole || name === "dlp_" + whole) return 6;
    if (name === "") return LOW[i][1].includes(whole) ? 2 : 1;
    if (WORDS[i][1] !== "field" && name.startsWith(whole)) return 5;
    if (WORDS[i][1] !== "field" && words.every(w => name.includes(w))) return 4;
    return words.every(w => name.includes(w)) ? 3 : 1;
}

function line(row, word) {
    const a = document.createElement("a");
    const begin = Math.max(0, row[3].toLowerCase().indexOf(word) - 80);
    const cut = (begin > 0 ? "... " : "") + row[3].slice(begin, begin + 200) +
        (row[3].length > begin + 200 ? " ..." : "");
    a.href = row[2];
    for (const [tag, text] of [["b", row[0]], ["i", " " + (row[0] ? row[1] : ">>" + row[1])],
                               ["span", cut]]) {
        const part = document.createElement(tag);
        part.textContent = text;
        a.append(part);
    }
    return a;
}

function search() {
    const whole = field.value.trim().toLowerCase();
    const words = whole.split(/\s+/).filter(w => w);
    at = -1;
    found.replaceChildren();
    found.classList.toggle("open", words.length > 0);
    if (words.length === 0) return;
    const rows = [];
    for (let i = 0; i < WORDS.length; i++) {
        const n = fit(i, words, whole);
        if (n > 0) rows.push([n, i]);
    }
    const length = row => WORDS[row[1]][0].length;
    rows.sort((a, b) => b[0] - a[0] || length(a) - length(b) || a[1] - b[1]);
    for (const row of rows.slice(0, MOST)) found.append(line(WORDS[row[1]], words[0]));
    if (rows.length !== found.childElementCount || rows.length === 0) {
        const p = document.createElement("p");
        p.textContent = rows.length === 0 ? "Nothing has all these words." :
            rows.length + " places; these are the first " + MOST + ".";
        found.append(p);
    }
}

function move(by) {
    const all = found.querySelectorAll("a");
    if (all.length === 0) return;
    if (at >= 0) all[at].classList.remove("at");
    at = (at + by + all.length) % all.length;
    all[at].classList.add("at");
    all[at].scrollIntoView({block: "nearest"});
}

field.addEventListener("input", search);
field.addEventListener("focus", search);
field.addEventListener("keydown", e => {
    if (e.key === "ArrowDown") move(1);
    else if (e.key === "ArrowUp") move(at < 0 ? 0 : -1);
    else if (e.key === "Escape") found.classList.remove("open");
    else if (e.key === "Enter") {
        const all = found.querySelectorAll("a");
        if (all.length > 0) location.href = all[Math.max(at, 0)].href;
        found.classList.remove("open");
    } else return;
    e.preventDefault();
});
document.addEventListener("keydown", e => {
    if (e.key === "/" && document.activeElement !== field) {
        e.preventDefault();
        field.focus();
    }
});
document.addEventListener("click", e => {
    if (!e.target.closest("header")) found.classList.remove("open");
});
const asked = new URLSearchParams(location.search).get("q");
if (asked) {
    field.value = asked;
    search();
}
