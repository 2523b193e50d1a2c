"""Describe the runs of a scale: what they were made with, and which claims have none, and why."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import pandas as pd

from fedgrid import claim as claims
from fedgrid.analysis import verdicts
from fedgrid.analysis.scores import RUN, list_cohort_sizes
from fedgrid.claim import Claim
from fedgrid.partitions._fedntd import FIXED
from fedgrid.runtime.names import UsageError
from fedgrid.store import kept, trained_again
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED
from fedgrid.study.records import Product, Study

PRODUCTS = ("claims", "controls")  # what the page is about
MAKERS = ["kept", *kept.MAKERS, kept.CHANGED]
ABOUT = ["kept", "diverged", "clients", "participation", "sampler", "recipe"]  # of a run
HOUR = 3600


def find_grids(study: Study, scale: str, products: Iterable[str] = PRODUCTS) -> list[str]:
    """Return the grids of a scale of whose runs these products have metrics."""
    entries = (study["products"].get(name, {"from": {}}) for name in products)
    sources = (text.partition("/") for entry in entries for text in entry["from"].values())
    named = dict.fromkeys(grid for kind, _, grid in sources if kind == "runs")
    return [grid for grid in named if grid in study["scales"][scale]["grids"]]


def list_grid_runs(
    name: str, scale: str, everything: Grid, products: Iterable[str] = PRODUCTS
) -> pd.DataFrame:
    """Return a row per run of the grids of these products, with its names and rounds."""
    grids = find_grids(everything.studies[name], scale, products)
    runs = [run for grid in grids for run in everything.runs(name, scale, grid)]
    table = pd.DataFrame(runs, columns=RUN).drop_duplicates(ignore_index=True)
    rounds = {
        protocol: everything.protocol(protocol)["rounds"] for protocol in table["protocol"].unique()
    }
    return table.assign(rounds=table["protocol"].map(rounds))


def list_finished_runs(
    study: Study, read: Callable[[Product], dict[str, pd.DataFrame]]
) -> pd.DataFrame:
    """Return a row per finished run with its names and the columns ABOUT."""
    collected = []
    for name in PRODUCTS:
        entry = study["products"].get(name, {"from": {}})
        try:
            collected.append(read(entry).get("runs"))
        except UsageError:
            continue  # the page already shows this error, from the table of claims
    columns = [*RUN, *ABOUT, kept.CHANGED]
    collected = [table.reindex(columns=columns) for table in collected if table is not None]
    if not collected:
        return pd.DataFrame(columns=columns)
    return pd.concat(collected).groupby(RUN, sort=False).last().reset_index()


def count_by_protocol(
    wanted: pd.DataFrame, finished: pd.DataFrame, problem: str, made_by: str
) -> pd.DataFrame:
    """Count wanted, finished and kept runs: a row for all, and one per data set and protocol.

    The first row also has what is wrong with tables, and the command that makes all runs.
    """
    both = wanted.merge(finished, on=RUN, how="left")
    both["there"] = both["diverged"].notna()
    groups = both.groupby(["dataset", "protocol"], sort=False) if both["there"].any() else []
    said = {"problem": problem, "command": made_by}
    rows = [{"protocol": ""} | count_runs(both) | said]
    rows += [{"protocol": protocol} | count_runs(part) for (_, protocol), part in groups]
    return pd.DataFrame(rows)


def count_runs(runs: pd.DataFrame) -> dict:
    """Describe some runs of a grid in one row: the finished ones, and how many were wanted."""
    finished = runs[runs["there"]]
    lost = finished[finished["diverged"].astype(bool)]
    # In how many rounds of a run a client takes part, on average over clients.
    of_client = list_cohort_sizes(finished) * finished["rounds"] / finished["clients"]
    # What all seeds share, because it is drawn without the run's seed.
    drawn = {
        "cohorts": finished["sampler"].eq("round"),
        "partition": finished["recipe"].isin(FIXED),
    }
    named = [f"{r.method} {r.dataset} {r.partition} seed {r.seed}" for r in lost.itertuples()]
    return {
        "datasets": join_texts(finished["dataset"]),
        "partitions": join_texts(finished["partition"]),
        "methods": finished["method"].nunique(),
        "names": join_texts(finished["method"]),
        "seeds": finished["seed"].nunique(),
        "rounds": join_texts(finished["rounds"]),
        "rounds_of_client": join_texts(of_client.astype(float).round(1)),
        "shared": " and ".join(name for name, found in drawn.items() if found.any()),
        "grid": len(runs),
        "there": len(finished),
        "kept": int(finished["kept"].astype(bool).sum()),
        "diverged": len(lost),
        "diverged_runs": ", ".join(named),
    }


def join_texts(names: Iterable) -> str:
    return ", ".join(dict.fromkeys(map(str, names)))


# -- with what it was made ------------------------------------------------------------------------


def count_by_maker(name: str, scale: str, finished: pd.DataFrame, results: Path) -> pd.DataFrame:
    """Count the runs and their hours for every combination of versions, code and machine.

    Of kept runs it says what has changed in the code since they were made. A run that is a link to
    another run took no time.
    """
    index = kept.read_index(kept.store_folder(name, scale))
    facts = [
        index.get(kept.folder_of_run(COLLECTED["runs"].format(**run)), {})
        | {"kept": True, kept.CHANGED: run[kept.CHANGED]}
        if run["kept"]
        else read_maker(results / COLLECTED["seconds"].format(**run))
        for run in finished.to_dict("records")
    ]
    table = pd.DataFrame(facts, columns=[*MAKERS, "seconds"])
    table["hours"] = pd.to_numeric(table.pop("seconds")).fillna(0) / HOUR
    table[MAKERS] = table[MAKERS].astype(object).fillna("")
    made = table.groupby(MAKERS, sort=False).agg(runs=("hours", "size"), hours=("hours", "sum"))
    return made.reset_index().round({"hours": 4})


def count_again(name: str, scale: str, finished: pd.DataFrame) -> pd.DataFrame:
    """Count which kept runs were trained again, in a table of one row; empty if none was."""
    runs = finished[finished["kept"].astype(bool)].to_dict("records")
    paths = {kept.folder_of_run(COLLECTED["runs"].format(**run)) for run in runs}
    noted = trained_again.read_noted(kept.store_folder(name, scale))
    found = trained_again.count_again(noted, paths)
    return pd.DataFrame([found] if found else [])


def read_maker(path: Path) -> dict:
    """Read from a run's summary what it was made with, and its seconds; 0 for a link."""
    try:
        summary = json.loads(path.read_text())
    except (OSError, ValueError):
        return {"kept": False}
    known = {key: summary.get(key) for key in ("code", "device", "threads")}
    seconds = 0 if "trained_as" in summary else summary.get("seconds")
    torch = summary.get("versions", {}).get("torch")
    return {"kept": False, "torch": torch, "seconds": seconds} | known


# -- claims without runs --------------------------------------------------------------------------

REASONS = {  # by what stands in the way: a field of the claim, or what the scale lacks
    "dataset": "they name data that the scale does not have",
    "partition": "they name partitions that the scale does not have",
    "protocol": "they name protocols that the scale does not have",
    "along": "they compare steps of which the scale has only one",
    "maps": "they are about maps of images, and the scale has not measured these",
    "method": "they name methods that the scale's grids do not have",
    "files": "not all of their runs, or of what these measured, are there yet",
}


def count_untested(
    study: Study, wanted: pd.DataFrame, compared: dict[int, int], tuned: bool
) -> pd.DataFrame:
    """Return a row for all claims without comparisons, then one for each reason.

    `wanted` has the names of the runs of the scale's grid, and `compared` the number of comparisons
    by claim. Rows that we added are not counted. Without runs nothing is.
    """
    parents = claims.find_parents(study.get("claims", []))
    numbered = zip(verdicts.number_claims(study, None), parents, strict=True)
    every = [claim for claim, parent in numbered if not parent]
    rows = [
        (number, REASONS[find_reason(claim, wanted, tuned)])
        for number, claim in every
        if not compared.get(number)
    ]
    table = pd.DataFrame(rows, columns=["claim", "reason"])
    parts = [("", table), *table.groupby("reason", sort=False)]
    counted = [
        (reason, len(part), len(every), ", ".join(map(str, part["claim"])))
        for reason, part in parts
    ]
    return pd.DataFrame(counted, columns=["reason", "untested", "claims", "numbers"])


def find_reason(claim: Claim, wanted: pd.DataFrame, tuned: bool) -> str:
    """Return the key of the reason why a claim has no comparisons."""
    if not claims.needs_runs(claim):
        return "maps"
    if verdicts.list_possible(claim, wanted, tuned):
        return "files"
    for field in ("dataset", "partition", "protocol", "along"):
        others = cast("Claim", {key: value for key, value in claim.items() if key != field})
        if field in claim and verdicts.list_possible(others, wanted, tuned):
            return field
    return "method"
