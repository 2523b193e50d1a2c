"""Which file to open after a command of Snakemake has made all that it was asked for."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from fedgrid.plan.configuration import Plan
from fedgrid.runtime.names import list_some

ORDER = (".html", ".svg", ".pdf", ".png", ".csv", ".tex")  # of the formats of one product
MOST = 3  # files that are named


def describe_made(plan: Plan, targets: Iterable[str]) -> str:
    """Return a sentence with the files that a reader opens; empty if no target is a file.

    A target that stands for a study, or none, stands for its front page. Of a product in several
    formats one is named.
    """
    files = [name_file(plan, target) for target in [*targets] or ["all"]]
    made = [path for path in files if Path(path).is_file()]
    products = groupby(sorted(made, key=rank), key=lambda path: Path(path).with_suffix(""))
    return f"Open {list_some([next(of) for _, of in products], MOST)}" if made else ""


def name_file(plan: Plan, target: str) -> str:
    """Return the file of a target: a study's front page for its name, or the target itself."""
    if target == "all":
        return f"{plan.current_folder}/front.html"
    if target in plan.studies:
        return f"{plan.folder}/front.html".format(study=target, scale=plan.config["scale"])
    return target


def rank(path: str) -> tuple[str, int]:
    """Return the place of a file among others: by its product, and then by its format."""
    base, ending = str(Path(path).with_suffix("")), Path(path).suffix
    return base, ORDER.index(ending) if ending in ORDER else len(ORDER)
