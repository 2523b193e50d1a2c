"""Where methods, models and studies are: in the package, and in the folder of one's own paper.

A folder is a paper's if its config.yaml has the key `paper`. Its methods/, models/, datasets/,
partitions/, report/ and studies/ are then read beside those of the package, by every command that
starts in it. Nothing is written into the package.
"""

import re
from functools import cache
from pathlib import Path

from fedgrid.runtime.own_config import CONFIG, is_own

PACKAGE = Path(__file__).parent.parent
# The folder of studies and schemas: in the package as a wheel has it, and beside it in a checkout.
HOME = PACKAGE if (PACKAGE / "studies").is_dir() else PACKAGE.parent
SCHEMAS = HOME / "schemas"
SNAKEFILE = (PACKAGE if HOME == PACKAGE else HOME.parent) / "Snakefile"
TEMPLATE = HOME / "template"  # of a paper's folder
OWN = ("methods", "models", "datasets", "partitions", "report")  # folders for modules of users
PAPER = re.compile(r"""^[{ ]*["']?paper["']?[ \t]*:""", re.MULTILINE)


@cache  # a process keeps the folder in which it first asks
def paper() -> Path | None:
    """Return this folder if it is a paper's."""
    text = CONFIG.read_text("utf-8-sig", errors="replace") if CONFIG.is_file() else ""
    return Path.cwd() if PAPER.search(text) and is_own(text) else None


def roots(kind: str) -> list[Path]:
    """Return what has folders of a kind, `methods` or `report/fedsls`; the package is first."""
    own = paper() if kind.partition("/")[0] in (*OWN, "studies") else None
    return [HOME if kind == "studies" else PACKAGE, *filter(None, [own])]


def search(kind: str) -> list[str]:
    """Return the `__path__` of a package to whose modules a paper's folder may add."""
    return [str(root / kind) for root in roots(kind)]


def relative(file: Path) -> Path | None:
    """Return the path of a file of the package or of the paper's folder in it, else None."""
    return next((file.relative_to(r) for r in roots(OWN[0]) if file.is_relative_to(r)), None)
