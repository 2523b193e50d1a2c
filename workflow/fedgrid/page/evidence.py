"""Judge a study's claims from the runs that are there, at one scale, and from printed numbers.

A table is missing if nothing is there to make it of. What stops a table, such as a damaged run, is
a sentence of the page (`problems`), and the other tables are made all the same.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from fedgrid.analysis import choice, figures, tables, verdicts
from fedgrid.draw import draw_table, load_product
from fedgrid.page import making
from fedgrid.page.standins import collect_there, judge_by_metric
from fedgrid.partitions import write_label
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED

METRICS = ("tail", "best", "smoothed")  # how a run can be scored: fields `metric` of protocols
COMPARED = [*verdicts.SETTING[:-1], "method", "over"]  # what names a comparison
BY_VERDICT = {"held": verdicts.HOLDS, "failed": verdicts.FAILS, "undecided": verdicts.UNDECIDED}
Sources = Callable[[dict], dict[str, pd.DataFrame]]  # the tables that a product's entry names
Tables = dict[str, pd.DataFrame]


# -- of a study, without runs ---------------------------------------------------------------------


def gather_study(name: str, study: dict) -> Tables:
    """Return what needs no new run: printed numbers, granularity, runs kept in another way."""
    about = {product: load_product(name, product, {}) for product in ("printed", "granularity")}
    found = {product: of.draw(study=study, scale="") for product, of in about.items()}
    if study.get("reference"):
        reference = load_product(name, "reference", {}).draw(study=study, scale="")
        found["reference"] = without_curves(reference)
    claims = study.get("claims", [])
    found["printed"]["tables"] = [tables_of(one, study) for one in claims]
    return {product: table for product, table in found.items() if len(table)}


def without_curves(reference: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs, without those of single evaluations."""
    return reference[reference["curve"].isna()] if "curve" in reference else reference


def tables_of(claim: dict, study: dict) -> str:
    """Return the published tables, and their data sets, of which a claim compares values.

    As a text `table1 cifar10, table3 all`; `all` is a table of which it compares several data sets.
    """
    found = []
    for name, table in study.get("published", {}).items():
        values = verdicts.published({**study, "published": {name: table}})
        datasets = verdicts.differences(claim, values)["dataset"].unique()
        if len(datasets):
            found.append(f"{name} {datasets[0] if len(datasets) == 1 else 'all'}")
    return ", ".join(found)


# -- of a study at a scale ------------------------------------------------------------------------


def gather_scale(name: str, scale: str, everything: Grid, results: Path) -> Tables:
    """Return the tables of a study's runs at a scale; `runs`, what was run, is always there."""
    study = everything.studies[name]
    read = reader(name, scale, everything, results)
    found, problems = {}, []
    for judge in (judged, controlled):
        try:
            found |= judge(name, scale, study, read)
        except UsageError as problem:
            problems.append(f"{problem}.")
    wanted = making.grid_of_claims(name, scale, everything)
    there = making.runs_there(study, read)
    found["runs"] = making.what_was_run(name, scale, wanted, there, " ".join(problems))
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
        return pd.read_csv(path) if path.exists() else None

    def there(entry: dict) -> Tables:
        found = {key: read(source) for key, source in entry["from"].items()}
        return {key: table for key, table in found.items() if table is not None}

    return there


def judged(name: str, scale: str, study: dict, read: Sources) -> Tables:
    """Return claims, contrasts, seeds one by one and verdicts by metric; nothing without runs."""
    entry = study["products"].get("claims", {"from": {}})
    sources = read(entry)
    if not sources:
        return {}
    claims = draw(name, "claims", entry, sources, study, scale)
    contrasts = draw(name, "contrasts", entry, sources, study, scale)
    best = entry.get("with", {}).get("best")
    choose = choice.chooser(sources.get("runs"), sources.get("settings"), best)
    evidence = {key: sources.get(key) for key in ("runs", "scores", "interpolation")}
    values = verdicts.measured(study, **evidence, choose=choose)
    found = {
        "claims": with_words(with_counts(claims, contrasts, values, study), contrasts, study),
        "contrasts": contrasts,
        "seeds": seed_by_seed(claims, values, study),
    }
    if evidence["runs"] is not None:
        by_metric = judge_by_metric(study, metrics=METRICS, **evidence, choose=choose)
        found["metrics"] = by_metric.round({"difference": 4, "low": 4, "high": 4})
    return found


def draw(name: str, file: str, entry: dict, sources: Tables, study: dict, scale: str):
    """Return the table that a file of report/ draws with a product's options."""
    product = load_product(name, file, entry | {"draw": file})
    return draw_table(product, sources, study, scale)


def with_counts(
    claims: pd.DataFrame, contrasts: pd.DataFrame, values: pd.DataFrame, study: dict
) -> pd.DataFrame:
    """Add the numbers of comparisons by verdict, and of pairs of runs in which one diverged."""
    counts = pd.DataFrame({"comparisons": contrasts.groupby("claim").size()})
    for name, word in BY_VERDICT.items():
        counts[name] = (contrasts["verdict"] == word).groupby(contrasts["claim"]).sum()
    counts = counts.reindex(claims["claim"], fill_value=0).reset_index(drop=True)
    every = [verdicts.differences(one, values) for _, one in verdicts.numbered(study, None)]
    lost = [int((~np.isfinite(found["value"])).sum()) for found in every]
    return pd.concat([claims, counts], axis=1).assign(pairs_diverged=lost)


def with_words(claims: pd.DataFrame, contrasts: pd.DataFrame, study: dict) -> pd.DataFrame:
    """Add the deciding comparison in words; with its protocol, if a data set has several."""
    several = tables.varies(contrasts, "protocol")
    shown = claims if several else claims.assign(protocol="")
    rows = shown[COMPARED].astype(object).fillna("").to_dict("records")
    return claims.assign(compared=[compared(row, study) for row in rows])


def compared(row: dict, study: dict) -> str:
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


def seed_by_seed(claims: pd.DataFrame, values: pd.DataFrame, study: dict) -> pd.DataFrame:
    """Return the difference of every seed in the deciding comparison of each claim."""
    found = []
    for number, claim in verdicts.numbered(study, None):
        (row,) = claims.loc[claims["claim"] == number, COMPARED].to_dict("records")
        every = verdicts.differences(claim, values)
        same = (every[COMPARED] == pd.Series(row)).all(axis="columns")
        ours = every[same].rename(columns={"value": "difference"}).sort_values("seed")
        found.append(ours[[*COMPARED, "seed", "difference"]].assign(claim=number))
    table = pd.concat(found) if found else pd.DataFrame()
    return table[["claim", *COMPARED, "seed", "difference"]].round({"difference": 4})


def controlled(name: str, scale: str, study: dict, read: Sources) -> Tables:
    """Return the table of the product `controls`; nothing if the study or the runs lack it."""
    entry = study["products"].get("controls")
    sources = read(entry) if entry else {}
    if "runs" not in sources:
        return {}
    product = load_product(name, "controls", entry)
    return {"controls": draw_table(product, sources, study, scale)}
