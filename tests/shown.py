"""What a browser shows of the page of verdicts, and which of it is in no table.

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

from fedgrid.page.sheets import MINUS
from made import STUDIES

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUOTES = [study["title"] for study in STUDIES.values()]
QUOTES += [claim["says"] for study in STUDIES.values() for claim in study.get("claims", [])]
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")
# Opens what is closed, and writes down all texts with a digit that have a place on the page.
VISIT = """<script>
for (const closed of document.querySelectorAll("details")) closed.open = true;
const seen = {texts: [], claims: [], inner: innerWidth};
seen.scroll = document.documentElement.scrollWidth;
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const of = node.parentElement, text = node.data.trim();
    if (!/\\d/.test(text) || of.closest("script, style, title") || !of.checkVisibility()) continue;
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
for (const claim of document.querySelectorAll("article.claim"))
    seen.claims.push([claim.id, claim.querySelector(".quote").textContent]);
const note = document.createElement("pre");
note.id = "seen";
note.textContent = JSON.stringify(seen);
document.body.append(note);
</script></body>"""


def look(page: str, folder: Path, width: int = 1500) -> dict:
    """What a browser shows of the page of verdicts; skips without a browser."""
    return visit(page, VISIT, folder, f"--window-size={width},1000")


def visit(page: str, script: str, folder: Path, *options: str) -> dict:
    """What a script, which ends the page, leaves in `seen`, in a browser that reaches no host."""
    before, after = page.rsplit("</body>", 1)
    (folder / "visited.html").write_text(before + script + after)
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


def problems(texts: list[dict], folder: Path) -> list[str]:
    """The texts with a digit that are not what the tables in a folder, or the studies, say."""
    sheets = {path.name: lines(path) for path in folder.glob("*.csv")}
    rows = {f"{name}:{at}": row for name, of in sheets.items() for at, row in of.items()}
    return [
        f"{one['text']} ({one['row']} {one['column']})"
        for one in texts
        if not is_right(one, sheets, rows)
    ]


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
    return text == cell or (one["at"] < 0 and is_rounded(text.replace(MINUS, "-"), cell))


def is_rounded(text: str, cell: str) -> bool:
    """Whether a text is the number of a cell, up to half a unit of its last decimal."""
    if not (NUMBER.fullmatch(text) and NUMBER.fullmatch(cell)):
        return False
    decimals = len(text.partition(".")[2])
    return abs(float(text) - float(cell)) <= 0.5 * 10**-decimals + 1e-9
