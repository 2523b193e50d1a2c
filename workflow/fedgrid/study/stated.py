"""Check the names in what a study states: claims, published tables, and labels.

Without these checks a misspelt name would raise no error: a claim would stay undecided, and a
published number would not be shown.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, product
from typing import Any

from fedgrid.claim import (
    COEFFICIENT,
    IN_POINTS,
    OF_KIND,
    OF_RUNS,
    Claim,
    check_others,
    measures,
    needs_experiments,
    needs_runs,
    others,
)
from fedgrid.partitions import match_name, parse_name, spell_name
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, known, listed, name_family, shown, within
from fedgrid.runtime.resolved import Named
from fedgrid.study.records import Study

SETTING: tuple[Named, ...] = ("dataset", "partition", "protocol")
# The axes whose values are names.
NAMED: tuple[Named, ...] = ("protocol", "dataset", "partition", "method")
PAPER = "paper"  # the protocol of the printed numbers, with the name of a column's own after it
STATISTICS = (
    *("median", "mean", "box", "deviation", "whiskers"),
    *("outliers", "low outliers", "spread of outliers"),
)
OF_MAPS = (*map(" ".join, product(("ssim", "cosine", "euclidean"), STATISTICS)), "explained")
MEASURES = (*OF_RUNS, *chain.from_iterable(OF_KIND.values()), *OF_MAPS)
LEAST_POINTS = 0.1  # a bound nearer to zero is a share, such as 0.02 for 2 points
ADDED = "averaged"  # an option of a product whose keys are names of its own
HEADING = "heading"  # of a published table of another source than the study's paper


GridNames = dict[str, set[Any]]  # as of `collect_names`


def collect_names(blocks: Iterable[Mapping[str, Any]]) -> GridNames:
    """Return the names on each axis, and as `settings` (dataset, partition, protocol)."""
    found: GridNames = {key: set() for key in (*NAMED, "settings")}
    for block in blocks:
        names = {axis: [*map(str, listed(block[axis]))] for axis in NAMED}
        for axis in NAMED:
            found[axis].update(names[axis])
        found["settings"].update(product(*(names[axis] for axis in SETTING)))
    return found


# -- claims ---------------------------------------------------------------------------------------


def check_claims(
    claims: list[Claim], grid_names: GridNames, published: dict[str, dict[str, Any]]
) -> None:
    printed = list_printed_names(published)
    among: dict[str, set[str]] = {axis: grid_names[axis] | printed[axis] for axis in NAMED}
    of_paper = [str(n) for n, claim in enumerate(claims, start=1) if not claim.get("added")]
    for number, claim in enumerate(claims, start=1):
        check_others(where := f"claims: number {number}", claim)
        with within(where):
            check_bounds(claim)
            if number == 1 and claim.get("added"):
                raise UsageError("`added` rows follow the claim that they belong to: move it down")
            if (parent := claim.get("added")) and parent is not True:
                known("claim of the paper, in `added`,", str(parent), of_paper)
            for name in claim.get("equal", {}):
                known("method of the claim, in `equal`,", name, listed(claim["method"]))
            for method, names in others(claim).items():
                if method in names:
                    raise UsageError(f"{method} is compared with itself: remove it from `over`")
            for name in measures(claim):
                if not name.startswith(COEFFICIENT):  # only a run knows which ones a method logs
                    known("measure", name, [*MEASURES, f"{COEFFICIENT}<column>"])
            check_compared(claim, among)


def check_claim_numbers(about: Study) -> None:
    numbers = [*map(str, range(1, len(about.get("claims", [])) + 1))]
    named = {"headline": about.get("headline", {})}
    named |= {f"replies: number {n}": reply for n, reply in enumerate(about.get("replies", []), 1)}
    for where, entry in named.items():
        with within(where):
            if "claim" in entry:
                known("number of a claim", str(entry["claim"]), numbers)


def list_printed_names(published: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """Return the names on each axis of the printed tables; protocols as claims call them."""
    tables = [one for one in published.values() if "rows" in one and HEADING not in one]
    columns = [column for table in tables for column in table["columns"]]
    return {
        "method": {method for table in tables for method in table["rows"]},
        "dataset": {column[0] for column in columns},
        "partition": {column[1] for column in columns},
        "protocol": {" ".join((PAPER, *column[2:])) for column in columns},
    }


def check_compared(claim: Claim, among: dict[str, set[str]]) -> None:
    if needs_experiments(claim):
        maps = {"method": {*list_maps()}, "dataset": {"all"}}  # a map counts as a method
        names = among if needs_runs(claim) else {}
        among = {axis: maps.get(axis, set()) | names.get(axis, set()) for axis in among}
    given: list[tuple[str, str, Any]] = [
        (axis, axis, claim[axis]) for axis in NAMED if axis in claim
    ]
    given += [("over", "method", names) for names in others(claim).values()]
    given += [(f"along.{axis}", axis, names) for axis, names in claim.get("along", {}).items()]
    for key, axis, names in given:
        for name in listed(names):
            with within(key):
                known(f"{axis} of the claims' grids or printed tables", name, among[axis])


def list_maps() -> list[str]:
    """Return the names of the maps of the fidelity study: saliency-input and so on."""
    layers = source.literal("experiments.fidelity.setting", "MAPS")
    return [f"{encoder}-{layer}" for encoder, names in layers.items() for layer in names]


def check_bounds(claim: Claim) -> None:
    bounds = {key: claim[key] for key in ("least", "most") if key in claim}
    if not bounds:
        raise UsageError("the claim needs `least`, `most` or both")
    for key, bound in bounds.items():
        if 0 < abs(bound) < LEAST_POINTS and {*IN_POINTS} & {*measures(claim)}:
            raise UsageError(
                f"{key} is {bound}, and accuracies are compared in points of percent: write "
                f"`{key}: {100 * bound:g}` if it is a share, or 0 for any difference"
            )
    if len(bounds) == 2 and bounds["least"] > bounds["most"]:
        raise UsageError(f"no number is at least {bounds['least']} and at most {bounds['most']}")


# -- published tables -----------------------------------------------------------------------------


def check_published(published: dict[str, dict[str, Any]], grid_names: GridNames) -> None:
    seen: dict[tuple, tuple[str, list]] = {}
    for name, table in published.items():
        if "rows" not in table:
            continue
        with within(f"published.{name}"):
            for column in table["columns"]:
                check_column(column, grid_names)
            check_rows(table, grid_names)
            if HEADING in table and not table.get("source"):
                raise UsageError(
                    f"the values under the heading {shown(table[HEADING])} have no citation: write "
                    "it as `source`"
                )
            refuse_second(name, table, seen)


def check_column(column: list[str], grid_names: GridNames) -> None:
    for axis, name in zip(SETTING, column, strict=False):
        known(f"{axis} of a grid of this study", name, grid_names[axis])
    if not any(setting[: len(column)] == tuple(column) for setting in grid_names["settings"]):
        raise UsageError(
            f"no grid of this study has the column {' '.join(column)}: correct it, or add it "
            "to a grid"
        )


def check_rows(table: dict, grid_names: GridNames) -> None:
    for key in ("rows", "speedups"):
        for method, values in table.get(key, {}).items():
            among = grid_names["method"] if key == "rows" else table["rows"]
            known(f"method of a grid of this study, in `{key}`,", method, among)
            if len(values) != len(table["columns"]):
                raise UsageError(
                    f"{key}.{method} has {len(values)} values for {len(table['columns'])} columns"
                )
    cells = [cell for row in table["rows"].values() for cell in row]
    values = [cell[0] if isinstance(cell, list) else cell for cell in cells]  # without deviations
    if values and max(values) <= 1:
        raise UsageError(
            f"no value in `rows` is above 1, as of shares, and they are read as percent: write "
            f"{100 * max(values):g} for {max(values)}"
        )
    images = table.get("test_images", {})
    for dataset in images if isinstance(images, dict) else ():
        known("dataset of a column, in `test_images`,", dataset, {c[0] for c in table["columns"]})


def refuse_second(name: str, table: dict, seen: dict[tuple, tuple[str, list]]) -> None:
    """Refuse a cell with another value than before, in this table or an earlier; add to `seen`."""
    for method, at in product(table["rows"], range(len(table["columns"]))):
        cell = (method, *table["columns"][at])
        key = (table.get(HEADING), *cell)
        value = [table["rows"][method][at], *table.get("speedups", {}).get(method, [])[at : at + 1]]
        first, other = seen.setdefault(key, (name, value))
        if any(a != b for a, b in zip(value, other, strict=False)):
            raise UsageError(
                f"{' '.join(cell)} has the value {shown(value[0])}, and in published.{first} "
                f"{shown(other[0])}: name the protocol in the columns of one of them, or keep one"
            )


# -- labels ---------------------------------------------------------------------------------------


def check_labels(about: Study, names) -> None:
    """Refuse a label for an unknown name; `names` is the Resolver."""
    labels, products = about.get("labels", {}), about["products"].values()
    added = [name for product in products for name in product.get("with", {}).get(ADDED, ())]
    every = [*names.methods(), *own_data.list_datasets(), *list_maps(), "original-grey", *added]
    for name in (name for name in labels if name != "protocols"):
        files = name.split("+")  # the files that a family of methods is made of
        family = name_family(files) if names.methods().keys() >= {*files} else ""
        if match_name(spell_name(name)):
            parse_name(name)  # it refuses another spelling
        elif not (names.knows("method", name) or name in (family, *added)):
            known("method, dataset or partition in `labels`", name, [*every, family])
    for name in labels.get("protocols", {}):
        names.check_name("protocol", name, "protocol in `labels.protocols`")


def check_kept_rows(study: Study, names) -> None:
    """Refuse unknown names in the tables `reference` and `curves`; `names` is the Resolver."""
    tables = {"reference": study.get("reference", [])}
    tables |= {f"curves.{name}": rows for name, rows in study.get("curves", {}).items()}
    for key, rows in tables.items():
        with within(key):
            for axis in NAMED:
                for name in dict.fromkeys(row[axis] for row in rows):
                    names.check_name(axis, name)
