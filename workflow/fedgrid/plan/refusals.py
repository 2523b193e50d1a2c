"""What the targets on the command line ask for, before anything is planned.

Some are refused: Snakemake would answer some of them with "Nothing to be done", and others with a
list of files. A target in a format that its product does not have in its study adds the format.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from fedgrid.claim import find_claim
from fedgrid.plan.configuration import Plan
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, known
from fedgrid.study.paths import COLLECTED
from fedgrid.study.products import FIGURES, FORMATS, product_module

PRODUCT = re.compile(r"results/(?:studies/([^/]+)/([^/]+)(/.+)?/)?([^/]+)\.\w+")
COPIED = re.compile(r"results/([^/]+)\.(?:csv|tex|html|svg|pdf|png)")
CLAIM = re.compile(r"results/(?:studies/([^/]+)/.+/)?[^/]+/([0-9]+)\.\w+")


def refuse_targets(plan: Plan, words: Iterable[str]) -> None:
    words = [*words]
    for target in filter(None, map(PRODUCT.fullmatch, words)):
        study, scale, part, product = target.groups()
        refuse_product(plan, study, scale, part, product, Path(target[0]).name)
        add_format(plan, study or plan.config["study"], product, Path(target[0]).suffix)
    for claim in filter(None, map(CLAIM.fullmatch, words)):
        study = claim[1] or plan.config["study"]
        claims = plan.studies[study].get("claims", []) if study in plan.studies else []
        find_claim(study, claims, int(claim[2]))
    refuse_unknown(plan, words)


def add_format(plan: Plan, study: str, product: str, suffix: str) -> None:
    """Let a product have a format that is asked for; UsageError for a picture of a table."""
    entries = plan.studies[study]["products"] if study in plan.studies else {}
    entry, form = entries.get(product), suffix.removeprefix(".")
    if entry is None or form in entry["formats"] or form not in FORMATS:
        return
    module = product_module(study, product, entry)
    if suffix in FIGURES and "plot" not in source.definitions(module):
        raise UsageError(f"{product} is a table, and has no picture: ask for csv, tex or html")
    entries[product] = {**entry, "formats": [*entry["formats"], form]}


def refuse_unknown(plan: Plan, words: Sequence[str]) -> None:
    study = plan.config["study"]
    products = {name for about in plan.studies.values() for name in about["products"]}
    bare = products - {*plan.studies}  # a study's name is a target
    for word in words:
        if word in plan.studies.left_out and is_target(word, words):
            plan.studies.named(word)
        file = COPIED.fullmatch(word)
        if word in bare and is_target(word, words):
            raise UsageError(f"{word} is a product: ask for its file, results/{word}.csv")
        if file and file[1] not in products and is_target(word, words):
            known(f"product of the study {study}", file[1], plan.studies[study]["products"])


def is_target(word: str, words: Sequence[str]) -> bool:
    from snakemake.cli import parse_args  # which only systems have that can run Snakemake

    with redirect_stderr(StringIO()):
        return word in parse_args([*words])[1].targets


def refuse_product(
    plan: Plan, study: str | None, scale: str | None, part: str | None, product: str, file: str
) -> None:
    """Raise a UsageError for a product of another study or part, or one without runs."""
    if Path(part or "").name in COLLECTED:
        return  # a collected table, which may have the name of a product
    name = study or plan.config["study"]
    if name in plan.studies.left_out:
        plan.studies.named(name)  # it raises the mistake
    if product in plan.studies.get(name, {"products": ()})["products"]:
        plan.grid.check_product(name, scale or plan.config["scale"], product)
        if study and (part or "") != plan.grid.part():
            # Snakemake would say that the product of the whole study is up to date.
            folder = plan.folder.format(study=study, scale=scale)
            raise UsageError(
                f"with this configuration {product} is in {folder}: ask for {folder}/{file}"
            )
        return
    others = [other for other, about in plan.studies.items() if product in about["products"]]
    if others and not study:
        raise UsageError(
            f"the study {name} has no {product}: it is a product of "
            f"{' and '.join(others)}; add --config study={others[0]}"
        )
