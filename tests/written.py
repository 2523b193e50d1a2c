"""What README.md, CONTRIBUTING.md and the pages of docs/ show: their blocks of code, page by page.

A page has the text of the files that it includes.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
OUTSIDE = ("README.md", "CONTRIBUTING.md")  # pages that are read in the repository only
PAGES |= {name: (ROOT / name).read_text() for name in OUTSIDE}
INCLUDED = re.compile(r'^--8<-- "([\w./-]+\.(?:md|txt))(?::\d+:)?"$', re.MULTILINE)
PAGES |= {
    name: INCLUDED.sub(lambda found: (ROOT / found[1]).read_text(), text)
    for name, text in PAGES.items()
}
FENCE = re.compile(r"^( *)```+ *(.*?)\n(.*?)^\1```+$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code: its language, `plan` and other classes, the file that it is, its text."""

    language: str
    classes: tuple[str, ...]
    file: str
    text: str


def blocks(page: str, *languages: str) -> list[Block]:
    """The blocks of a page in some languages, or in any, in their order."""
    found = [block(info, text) for _, info, text in FENCE.findall(PAGES[page])]
    return [one for one in found if one.language in (languages or (one.language,))]


def block(info: str, text: str) -> Block:
    """A block by what stands behind its fence: `sh`, `{ .sh .plan }` or `yaml title="a.yaml"`."""
    (file,) = re.findall(r'title="(.*?)"', info) or [""]
    language, *classes = re.sub(r'[{}.]|title=".*?"', " ", info).split() or [""]
    return Block(language, tuple(classes), file, text)
