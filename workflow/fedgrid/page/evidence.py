"""Judge a study's claims from the runs that are there, at one scale, and from printed numbers.

A table is missing if nothing is there to make it of. What stops a table, such as a damaged run, is
a sentence of the page (`problems`), and the other tables are made all the same.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from fedgrid.analysis import choice, figures, measures, tables, verdicts
from fedgrid.claim import Claim
from fedgrid.page import making
from fedgrid.partitions import write_label
from fedgrid.report import claims, granularity
from fedgrid.report._product import draw_table, load_product
from fedgrid.report._product import read as read_table
from fedgrid.runtime.names import UsageError, listed
from fedgrid.store.tables import collect_there
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED
from fedgrid.study.records import Product, Study

METRICS = ("tail", "best", "smoothed")  # how a run can be scored: fields `metric` of protocols
ROUNDED = {"difference": 4, "low": 4, "high": 4, "p": 4}  # decimals
BY_VERDICT = {"held": verdicts.HOLDS, "failed": verdicts.FAILS, "undecided": verdicts.UNDECIDED}
Sources = Callable[[Product], dict[str, pd.DataFrame]]  # the tables that a product's entry names
Tables = dict[str, pd.DataFrame]


# -- of a study, without runs ---------------------------------------------------------------------


def gather_study(name: str, study: Study) -> Tables:
    """Return what needs no new run: printed numbers, granularity, runs kept in another way."""
    about = {product: load_product(name, product, {}) for product in ("printed", "granularity")}
    found = {product: of.draw(study=study, scale="") for product, of in about.items()}
    if study.get("reference"):
        reference = load_product(name, "reference", {}).draw(study=study, scale="")
        found["reference"] = without_curves(reference)
    found["printed"]["tables"] = tables_of(study, found["printed"]["published_verdict"])
    return {product: table for product, table in found.items() if len(table)}


def without_curves(reference: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs, without those of single evaluations."""
    return reference[reference["curve"].isna()] if "curve" in reference else reference


def tables_of(study: Study, published: Iterable[str]) -> list[str]:
    """Return, for each claim, the published tables and data sets of which it compares values.

    As a text `table1 cifar10, table3 all`; `all` is a table of which it compares several data sets.
    `published` are the verdicts from printed numbers; a claim without one compares no values.
    """
    values = {
        name: measures.measure_printed({**study, "published": {name: table}})
        for name, table in study.get("published", {}).items()
    }
    every = zip(study.get("claims", []), published, strict=True)
    return [", ".join(named_tables(claim, values)) if said else "" for claim, said in every]


def named_tables(claim: Claim, values: dict[str, pd.DataFrame]) -> Iterator[str]:
    """Yield the tables, by their values, of which a claim compares values: `table1 cifar10`."""
    for name, of in values.items():
        datasets = verdicts.differences(claim, of)["dataset"].unique()
        if len(datasets):
            yield f"{name} {datasets[0] if len(datasets) == 1 else granularity.WHOLE}"


# -- of a study at a scale ------------------------------------------------------------------------


def gather_scale(name: str, scale: str, everything: Grid, results: Path) -> Tables:
    """Return the tables of a study's runs at a scale; `runs`, what was run, is always there."""
    study = everything.studies[name]
    read = reader(name, scale, everything, results)
    found: Tables = {}
    problems: list[str] = []
    of_claims = making.grid_of(name, scale, everything, ["claims"])
    for judge in (partial(judged, wanted=of_claims), controlled):
        try:
            found |= judge(name, scale, study, read)
        except UsageError as problem:
            problems.append(f"{problem}.")
    wanted = making.grid_of(name, scale, everything)
    there = making.runs_there(study, read)
    said = " ".join(dict.fromkeys(problems))
    made_by = making.command(name, scale)
    found["runs"] = making.what_was_run(wanted, there, said, made_by)
    if there is not None:
        found["made"] = making.made_with(name, scale, there, results)
    return {kind: table for kind, table in found.items() if len(table)}


def reader(name: str, scale: str, everything: Grid, results: Path) -> Sources:
    """Return a function that reads those sources of a product that are there."""
    grids = everything.studies[name]["scales"][scale]["grids"]

    @cache
    def read(source: str) -> pd.DataFrame | None:
        kind, _, grid = source.partition("/")
        if kind in COLLECTED:
            asked = (kind, everything, name, scale, grid, results)
            return collect_there(*asked) if grid in grids else None
        path = results / "studies" / name / scale / f"{source}.csv"
        return read_table(path) if path.exists() else None

    def there(entry: Product) -> Tables:
        found = {key: read(source) for key, source in entry["from"].items()}
        return {key: table for key, table in found.items() if table is not None}

    return there


def judged(
    name: str, scale: str, study: Study, read: Sources, wanted: pd.DataFrame | None = None
) -> Tables:
    """Return claims, contrasts, seeds one by one and verdicts by metric; nothing without runs.

    `wanted` are the runs of the grid: a comparison whose runs are not all there is missing.
    """
    entry = study["products"].get("claims", {"from": {}})
    sources = read(entry)
    if not sources:
        return {}
    best = entry.get("with", {}).get("best")
    choose = choice.chooser(sources.get("runs"), sources.get("settings"), best)
    given = {key: sources.get(key) for key in ("runs", "scores", "interpolation")}
    values = measures.measure_all(study, **given, choose=choose)
    missing = verdicts.count_missing(study, wanted, given["runs"])
    contrasts = compare_all(study, values, missing)
    pairs = {n: verdicts.differences(one, values) for n, one in verdicts.numbered(study, None)}
    found = judge_all(study, values, missing).merge(count(contrasts, pairs), on="claim")
    found["compared"] = in_words(found, contrasts, study)
    metrics = by_metric(found, study, given, choose, missing)
    tables = {"claims": found, "contrasts": contrasts, "metrics": metrics}
    return tables | {"seeds": seed_by_seed(found, pairs)}


def judge_all(study: Study, values: pd.DataFrame, missing: dict[int, int]) -> pd.DataFrame:
    """Return a row per claim, as the product `claims` has it."""
    printed = measures.measure_printed(study)
    rows = [
        {"claim": number} | claims.row(claim, values, printed, missing[number])
        for number, claim in verdicts.numbered(study, None)
    ]
    return pd.DataFrame(rows, columns=["claim", *claims.COLUMNS]).round(ROUNDED)


def compare_all(study: Study, values: pd.DataFrame, missing: dict[int, int]) -> pd.DataFrame:
    """Return a row per comparison of each claim, as the product `contrasts` has it."""
    found = [
        verdicts.compare(claim, values, missing[number]).assign(claim=number)
        for number, claim in verdicts.numbered(study, None)
    ]
    table = pd.concat([one for one in found if len(one)] or found[:1])
    return table[["claim", *verdicts.COMPARED, *verdicts.JUDGED]].round(ROUNDED)


def count(contrasts: pd.DataFrame, pairs: dict[int, pd.DataFrame]) -> pd.DataFrame:
    """Return per claim: comparisons by verdict, and pairs of runs in which one diverged."""
    table = pd.DataFrame({"comparisons": contrasts.groupby("claim").size()})
    for name, word in BY_VERDICT.items():
        table[name] = (contrasts["verdict"] == word).groupby(contrasts["claim"]).sum()
    table = table.reindex(pairs, fill_value=0)
    table["pairs_diverged"] = [(~np.isfinite(of["value"])).sum() for of in pairs.values()]
    return table.rename_axis("claim").reset_index()


def by_metric(
    found: pd.DataFrame,
    study: Study,
    given: Tables,
    choose: choice.Chooser,
    missing: dict[int, int],
) -> pd.DataFrame:
    """Return our verdict on each claim with every metric; none without runs.

    Verdicts with the metric of the runs' protocols are `found` already.
    """
    if given["runs"] is None:
        return pd.DataFrame()
    own = [*given["runs"]["metric"].unique()]
    others = [name for name in METRICS if own != [name]]
    judged = verdicts.judge_by_metric(
        study, metrics=others, **given, choose=choose, missing=missing
    )
    ours = [found.assign(metric=own[0])[[*judged]]] if len(own) == 1 else []
    table = pd.concat([*ours, judged]).sort_values("claim", kind="stable")
    return table.round(ROUNDED)


def in_words(found: pd.DataFrame, contrasts: pd.DataFrame, study: Study) -> list[str]:
    """Return the deciding comparisons in words; with the protocol, if a data set has several."""
    several = tables.varies(contrasts, "protocol")
    shown = found if several else found.assign(protocol="")
    rows = shown[verdicts.COMPARED].astype(object).fillna("").to_dict("records")
    return [compared(row, study) for row in rows]


def compared(row: dict, study: Study) -> str:
    """Return a comparison in words: `FedSLS minus FedAvg; digits, alpha=0.1; 20 clients`."""
    over = f" minus {figures.label(study, row['over'])}" if row["over"] else ""
    labelled = partial(figures.label, study, axis="protocol")
    where = figures.label(study, row["dataset"]), each(row["partition"], write_label)
    measure = "" if row["measure"] == "accuracy" else row["measure"]
    parts = [
        figures.label(study, row["method"]) + over,
        measure,
        ", ".join(filter(None, where)),
        each(row["protocol"], labelled),
    ]
    return "; ".join(filter(None, parts))


def each(names: str, label: Callable[[str], str]) -> str:
    """Return the labels of a name, or of the two names of a growth: `dir0.5 to dir0.1`."""
    return " to ".join(label(name) for name in names.split(" to "))


def seed_by_seed(found: pd.DataFrame, pairs: dict[int, pd.DataFrame]) -> pd.DataFrame:
    """Return the difference of every seed in the deciding comparison of each claim."""
    rows = (
        found[["claim", *verdicts.COMPARED]]
        .rename(columns={"claim": "number"})
        .itertuples(index=False)
    )
    every = [of_comparison(pairs[row[0]], row[1:]).assign(claim=row[0]) for row in rows]
    table = pd.concat(every).rename(columns={"value": "difference"})
    return table[["claim", *verdicts.COMPARED, "seed", "difference"]].round(ROUNDED)


def of_comparison(pairs: pd.DataFrame, names: tuple) -> pd.DataFrame:
    """Return the rows of one comparison, by seed."""
    same = (pairs[verdicts.COMPARED] == pd.Series(names, verdicts.COMPARED)).all(axis="columns")
    return pairs[same].sort_values("seed", kind="stable")


def controlled(name: str, scale: str, study: Study, read: Sources) -> Tables:
    """Return the table of the product `controls`; nothing without it, or without placebos' runs."""
    entry = study["products"].get("controls", {"from": {}})
    sources = read(entry)
    placebos = entry.get("with", {}).get("placebos", {}).values()
    there = {*sources["runs"]["method"]} if "runs" in sources else set()
    if there.isdisjoint(one for names in placebos for one in listed(names)):
        return {}
    options = entry["with"] | {"metrics": [*METRICS]}
    product = load_product(name, "controls", entry | {"with": options})
    return {"controls": draw_table(product, sources, study, scale)}
