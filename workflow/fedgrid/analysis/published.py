"""Put published values, and those of runs that are kept with a study, beside those of our runs."""

from collections.abc import Iterator

import pandas as pd

from fedgrid.analysis.scores import CELL, strict_mean
from fedgrid.runtime.names import listed
from fedgrid.study.records import Study

OWN = ""  # the source of a published table without a heading: the study's paper
BY = "published by "  # begins the name of a column with the values of another source
STD = " (std)"  # ends that of the column with their deviations
CITED = "cited"  # the column with the citations, if there are several sources
KEYS = ["method", "dataset", "partition", "as_protocol"]
VALUES = ["published", "published_std", "published_speedup"]
MAKERS = ["device", "threads", "torch", "code"]  # the machine and code of a run


def list_published_cells(study: Study) -> pd.DataFrame:
    """Return a row per cell of the paper's own tables: percent, deviation and printed speed-up.

    A cell that several tables show occurs once. `as_protocol` is empty for cells of the study's
    main setting.
    """
    return list_cells(group_by_source(study)[OWN])


def group_by_source(study: Study) -> dict[str, list[dict]]:
    """Return the published tables by whose they are: OWN, or the heading of another source."""
    by_source: dict[str, list[dict]] = {OWN: []}
    for table in study.get("published", {}).values():
        by_source.setdefault(table.get("heading", OWN), []).append(table)
    return by_source


def list_cells(tables: list[dict]) -> pd.DataFrame:
    rows = [row for table in tables for row in list_published_rows(table)]
    cells = pd.DataFrame(rows, columns=[*KEYS, *VALUES])
    cells = cells.astype(dict.fromkeys(("published", "published_std"), float))
    return cells.groupby(KEYS, sort=False, as_index=False).first()


def list_published_rows(table: dict) -> Iterator[tuple]:
    for method, values in table.get("rows", {}).items():
        speedups = table.get("speedups", {}).get(method) or [None] * len(table["columns"])
        for column, value, speedup in zip(table["columns"], values, speedups, strict=True):
            dataset, partition, as_protocol = column if len(column) == 3 else (*column, "")
            percent, deviation = value if isinstance(value, list) else (value, None)
            yield method, dataset, partition, as_protocol, percent, deviation, speedup


def join_published(table: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Add the published values to cells, by method and setting.

    The values of another source than the study's paper have columns of their own, and no speed-ups.
    Published columns without a protocol belong to the protocols in the study's `main`, or else to
    all protocols that no published column names.
    """
    by_source = group_by_source(study)
    every = list_cells([one for tables in by_source.values() for one in tables])
    named = table["protocol"].isin(every["as_protocol"])
    main = table["protocol"].isin(listed(study["main"])) if "main" in study else ~named
    joined = table.assign(as_protocol=table["protocol"].where(named).mask(main, ""))
    cited = cite_sources(joined, by_source)
    for heading, tables in by_source.items():
        cells, name = list_cells(tables), f"{BY}{heading}"
        if heading != OWN:
            cells = cells.drop(columns="published_speedup")
            cells = cells.rename(columns={"published": name, "published_std": f"{name}{STD}"})
        if heading == OWN or heading in cited:
            joined = joined.merge(cells, how="left", on=KEYS)
    joined = joined.drop(columns="as_protocol")
    return joined.assign(**{CITED: write_citations(cited)}) if {*cited} - {OWN} else joined


def list_sources(table: pd.DataFrame) -> list[str]:
    """Return the columns of a table with the values of other sources than the study's paper."""
    return [name for name in table if name.startswith(BY) and not name.endswith(STD)]


def cite_sources(cells: pd.DataFrame, by_source: dict[str, list[dict]]) -> dict[str, list[str]]:
    """Return the citations of those published tables that have one of the cells, by source."""
    cited: dict[str, list[str]] = {}
    for heading, tables in by_source.items():
        for one in tables:
            if "rows" in one and len(cells[KEYS].merge(list_cells([one])[KEYS])):
                cited.setdefault(heading, []).append(one.get("source", "no source is named"))
    return cited


def write_citations(cited: dict[str, list[str]]) -> str:
    """Write where published values are from: `Published: A, table 1. Published by B: B, 2020.`"""
    sentences = []
    for heading, texts in cited.items():
        by = f"Published by {heading}" if heading else "Published"
        sentences.append(f"{by}: {'; '.join(dict.fromkeys(texts))}.")
    return " ".join(sentences)


def join_reference(table: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Add the mean over seeds of the runs that are kept with the study, if any."""
    means = average_kept_runs(study)[[*CELL, "mean"]].rename(columns={"mean": "reference"})
    return table.merge(means, how="left", on=CELL)


def average_kept_runs(study: Study) -> pd.DataFrame:
    """Return a row per cell of the runs kept with the study: means over seeds, machine, code."""
    columns = ["accuracy", "final", "smoothed", "rounds", "tail", "seconds_per_round"]
    names = [*CELL, "seed", *columns, "metric", *MAKERS]
    runs = pd.DataFrame(study.get("reference", []), columns=names)
    runs[columns] = runs[columns].apply(pd.to_numeric)  # a run that diverged has no accuracy
    means = {"mean": "accuracy"} | {n: n for n in ("final", "smoothed", "seconds_per_round")}
    over_seeds = {name: (column, strict_mean) for name, column in means.items()}
    facts = {name: (name, "first") for name in ("rounds", "metric", "tail", *MAKERS)}
    means_by_cell = runs.groupby(CELL, sort=False).agg(
        seeds=("seed", "nunique"), **over_seeds, **facts
    )
    return means_by_cell.reset_index()
