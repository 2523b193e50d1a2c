"""What a browser shows of the pages of verdicts, and which of it is in no table.

The numbers of an axis, and the places of what is drawn above it, must agree with the tables, too.

A text with a digit is right if it is a quote of a study, the name of a table or row, or what stands
in the row and column that it names. A number may be rounded, to the decimals that are shown.
"""

import csv
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from fedgrid.analysis.symbols import LETTERS
from fedgrid.page.sheets import MINUS
from made import STUDIES

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUOTES = [study["title"] for study in STUDIES.values()]
QUOTES += [
    study["cite"]["authors"] for study in STUDIES.values() if "authors" in study.get("cite", {})
]
QUOTES += [
    why
    for study in STUDIES.values()
    for claim in study.get("claims", [])
    for why in claim.get("equal", {}).values()
]
QUOTES += [claim["says"] for study in STUDIES.values() for claim in study.get("claims", [])]
# What scripts call at their end.
WRITE_DOWN = """<script>
function writeDown(seen) {
    const note = document.createElement("pre");
    note.id = "seen";
    note.textContent = JSON.stringify(seen);
    document.body.append(note);
}
</script>"""
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")
# Opens what is closed, and writes down all texts with a digit that have a place on the page.
VISIT = """<script>
for (const closed of document.querySelectorAll("details")) closed.open = true;
const seen = {texts: [], claims: [], plots: [], inner: innerWidth};
seen.scroll = document.documentElement.scrollWidth;
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const of = node.parentElement, text = node.data.trim();
    if (!/\\d/.test(text) || of.closest("script, style, title, svg.axis")) continue;
    if (!of.checkVisibility()) continue;
    const linked = of.closest("a[data-column]"), plain = of.closest("[data-row]");
    const cell = of.closest("table.sheet td");
    const inside = plain ? plain.dataset.row : cell ? cell.parentElement.id : "";
    seen.texts.push({
        text,
        quote: !!of.closest(".quote"),
        file: !!of.closest(".file"),
        row: linked ? linked.hash.slice(1) : inside,
        column: (linked || plain)?.dataset.column ?? "",
        at: cell ? cell.cellIndex - 1 : -1,
    });
}
for (const claim of document.querySelectorAll("article.claim, .added"))
    seen.claims.push([claim.id, claim.querySelector("q.quote").textContent]);
const percent = (node, name) => parseFloat(node.getAttribute(name));
for (const forest of document.querySelectorAll(".forest")) {
    const ticks = [...forest.querySelectorAll(".axis text")]
        .map((tick) => [percent(tick, "x"), tick.textContent]);
    for (const drawn of forest.querySelectorAll("g[data-row]")) {
        const one = (name) => drawn.querySelector("." + name), found = {};
        for (const name of ["mean", "printed"])
            if (one(name)) found[name] = percent(one(name).parentElement, "x");
        const ends = one("ends");
        if (ends) [found.low, found.high] = [percent(ends, "x1"), percent(ends, "x2")];
        seen.plots.push({ticks, row: drawn.dataset.row, column: drawn.dataset.column, found});
    }
}
writeDown(seen);
</script></body>"""


def look(page: str, folder: Path, width: int = 1500) -> dict:
    """What a browser shows of the page of verdicts; skips without a browser."""
    return visit(page, VISIT, folder, f"--window-size={width},1000")


def visit(page: str, script: str, folder: Path, *options: str) -> dict:
    """What a script at the end of a page writes down, in a browser that reaches no host."""
    before, after = page.rsplit("</body>", 1)
    (folder / "visited.html").write_text(before + WRITE_DOWN + script + after)
    shown = browse((folder / "visited.html").as_uri(), folder, *options)
    (found,) = re.findall(r'<pre id="seen">(.*?)</pre>', shown, re.DOTALL)
    return json.loads(unescape(found))


def browse(address: str, folder: Path, *options: str) -> str:
    """The HTML of a page after its scripts, in a browser that reaches no host; may skip."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    command = [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}"),
        *(*options, "--dump-dom", address),
    ]
    return subprocess.run(command, text=True, capture_output=True, timeout=300).stdout


# Writes down what a reader cannot see well in a frame of a width: cut texts, gaps, weak colours.
MEASURE = """<script>
const frame = document.querySelector("iframe");
const text = (node) => [...node.childNodes].some((of) => of.nodeType === 3 && of.data.trim());
const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => v / 255)
        .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
};
const contrast = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
frame.onload = () => {
    const page = frame.contentDocument, view = frame.contentWindow, spans = [], cut = [];
    for (const node of page.body.querySelectorAll("*")) {
        if (!text(node) || !node.checkVisibility()) continue;
        if (node.closest("script, style, title")) continue;
        const box = node.getBoundingClientRect();
        spans.push([box.top, box.bottom]);
        if (node.closest(".wide, select")) continue;
        const over = box.right > view.innerWidth + 1 || box.left < -1;
        const inside = node instanceof view.HTMLElement && node.scrollWidth > node.clientWidth + 1
            && view.getComputedStyle(node).display !== "inline";
        if (over || inside) cut.push(node.textContent.trim().slice(0, 50));
    }
    let reached = 0, gap = 0;
    for (const [top, bottom] of spans.sort((a, b) => a[0] - b[0])) {
        gap = Math.max(gap, top - reached);
        reached = Math.max(reached, bottom);
    }
    const colour = (of, name) => light(view.getComputedStyle(page.querySelector(of))[name]);
    const ground = colour("body", "backgroundColor"), found = {};
    for (const of of [".claim h3", ".claim .small", ".claim a", ".label"])
        found[of] = contrast(ground, colour(of, "color"));
    const scroll = page.documentElement.scrollWidth;
    frame.remove();
    writeDown({cut, gap, contrast: found, dark: ground < .2, scroll});
};
frame.srcdoc = PAGE;
</script></body>"""


def measure(page: str, folder: Path, width: int, dark: bool = False) -> dict:
    """What of the page is cut, empty or weak in colour, in a frame of a width."""
    size = f"width:{width}px;height:1000px;border:0"
    around = f'<html><body style="margin:0"><iframe style="{size}"></iframe></body></html>'
    quoted = json.dumps(page).replace("</", "<\\/")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    options = ("--window-size=1600,1000", "--virtual-time-budget=30000", scheme)
    return visit(around, MEASURE.replace("PAGE", quoted), folder, *options)


def problems(texts: list[dict], folder: Path) -> list[str]:
    """The texts with a digit that are not what the tables in a folder, or the studies, say."""
    sheets = {path.name: lines(path) for path in folder.glob("*.csv")}
    rows = {f"{name}:{at}": row for name, of in sheets.items() for at, row in of.items()}
    return [
        f"{one['text']} ({one['row']} {one['column']})"
        for one in texts
        if not is_right(one, sheets, rows)
    ]


def misplaced(plots: list[dict], folder: Path) -> list[str]:
    """What is drawn at another place than its value in a table has on the axis."""
    rows = {
        f"{path.name}:{at}": row for path in folder.glob("*.csv") for at, row in lines(path).items()
    }
    return [
        f"{one['row']} {name}"
        for one in plots
        for name, at in one["found"].items()
        if not is_at(at, one["ticks"], rows[one["row"]], name_column(one["column"], name))
    ]


def name_column(column: str, drawn: str) -> str:
    """The column of what is drawn: a mean, an end of its interval, or the printed value."""
    if drawn in ("mean", "printed"):
        return column if drawn == "mean" else drawn
    return drawn if column == "difference" else f"{column}_{drawn}"


def is_at(at: float, ticks: list, row: dict[str, str], column: str) -> bool:
    """Whether a value is drawn at its place on an axis; beyond an end it is at the end."""
    (x0, first), (x1, last) = (
        (x, float(text.replace(MINUS, "-"))) for x, text in (ticks[0], ticks[-1])
    )
    expected = x0 + (float(row[column]) - first) * (x1 - x0) / (last - first)
    return abs(at - min(max(expected, 0), 100)) < 0.1


def lines(path: Path) -> dict[int, dict[str, str]]:
    """The rows of a CSV file by their lines."""
    with path.open(newline="") as file:
        return dict(enumerate(csv.DictReader(file), start=2))


def is_right(one: dict, sheets: dict, rows: dict) -> bool:
    """Whether a text is a quote, a name, or what stands in the row and column that it names."""
    text = one["text"]
    if one["quote"]:
        return any(all(part in quote for part in text.split("…")) for quote in QUOTES)
    if one["file"]:
        return text in sheets or text in rows
    row = rows.get(one["row"], {})
    cell = [*row.values()][one["at"]] if one["at"] >= 0 else row.get(one["column"], "")
    plain = text.replace(MINUS, "-")
    for word, letter in LETTERS.items():
        plain = plain.replace(letter, word)
    return text == cell or (one["at"] < 0 and (plain == cell or is_rounded(plain, cell)))


def is_rounded(text: str, cell: str) -> bool:
    """Whether a text is the number of a cell, up to half a unit of its last decimal."""
    if not (NUMBER.fullmatch(text) and NUMBER.fullmatch(cell)):
        return False
    decimals = len(text.partition(".")[2])
    return abs(float(text) - float(cell)) <= 0.5 * 10**-decimals + 1e-9
