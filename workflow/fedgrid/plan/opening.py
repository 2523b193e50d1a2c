"""What a command of Snakemake and its report say first: which file to open, and what was found."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from fedgrid.plan.configuration import Plan
from fedgrid.runtime.names import list_some

ORDER = (".html", ".svg", ".pdf", ".png", ".csv", ".tex")  # of the formats of one product
MOST = 3  # files that are named
ANSWER = "claims"  # the product that is opened first of a study that has it
QUICK = "The quick scale shows that everything works. It says nothing about the paper's claims."


def describe_study(plan: Plan) -> str:
    """Return what the report says first: the study, its scale, and what was found by kept runs."""
    name, scale = plan.config["study"], plan.config["scale"]
    study = plan.studies[name]
    text = f"**{study['title']}**. Study {name} at the {scale} scale. {QUICK * (scale == 'quick')}"
    found = study.get("headline", {}).get("says", "")
    return f"{text}\n\nFound by the runs that are kept with the study: {found}" if found else text


def describe_made(plan: Plan, targets: Iterable[str]) -> str:
    """Return a sentence with the files that a reader opens; empty if no target is a file.

    A target that stands for a study, or none, stands for its claims, or else its first product. Of
    a product in several formats one is named.
    """
    files = [name_file(plan, target) for target in [*targets] or ["all"]]
    is_there = plan.snakemake.has_storage
    made = [path for path in files if is_there or Path(path).is_file()]
    products = groupby(sorted(made, key=rank), key=lambda path: Path(path).with_suffix(""))
    first = [plan.snakemake.place_of(next(of)) for _, of in products]
    return f"Open {list_some(first, MOST)}" if made else ""


def name_file(plan: Plan, target: str) -> str:
    study = plan.config["study"] if target == "all" else target
    if study not in plan.studies:
        return target
    products = plan.studies[study]["products"]
    name = ANSWER if ANSWER in products else next(iter(products))
    folder = plan.folder.format(study=study, scale=plan.config["scale"])
    return min((f"{folder}/{name}.{ext}" for ext in products[name]["formats"]), key=rank)


def rank(path: str) -> tuple[str, int]:
    """Return the place of a file among others: by its product, and then by its format."""
    base, ending = str(Path(path).with_suffix("")), Path(path).suffix
    return base, ORDER.index(ending) if ending in ORDER else len(ORDER)
