"""Put published values, and those of runs that are kept with a study, beside those of our runs."""

from collections.abc import Iterator

import pandas as pd

from fedgrid.analysis.scores import CELL, strict_mean
from fedgrid.runtime.names import listed
from fedgrid.study.records import Study

MAKERS = ["device", "threads", "torch", "code"]  # the machine and code of a run


def list_published_cells(study: Study) -> pd.DataFrame:
    """Return a row per cell of the published tables: percent, deviation and printed speed-up.

    A cell that several tables show occurs once. `as_protocol` is empty for cells of the study's
    main setting.
    """
    tables = study.get("published", {}).values()
    rows = [row for table in tables for row in list_published_rows(table)]
    keys = ["method", "dataset", "partition", "as_protocol"]
    columns = [*keys, "published", "published_std", "published_speedup"]
    cells = pd.DataFrame(rows, columns=columns)
    cells = cells.astype(dict.fromkeys(("published", "published_std"), float))
    return cells.groupby(keys, sort=False, as_index=False).first()


def list_published_rows(table: dict) -> Iterator[tuple]:
    """Yield a row per method and column of one published table, for `list_published_cells`."""
    for method, values in table.get("rows", {}).items():
        speedups = list_printed_speedups(table, method)
        for column, value, speedup in zip(table["columns"], values, speedups, strict=True):
            dataset, partition, as_protocol = column if len(column) == 3 else (*column, "")
            percent, deviation = value if isinstance(value, list) else (value, None)
            yield method, dataset, partition, as_protocol, percent, deviation, speedup


def list_printed_speedups(table: dict, method: str) -> list:
    """Return the published speed-ups of a method, or a list of None if none are printed."""
    return table.get("speedups", {}).get(method) or [None] * len(table["columns"])


def join_published(table: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Add the published values to cells, by method and setting.

    Published columns without a protocol belong to the protocols in the study's `main`, or else to
    all protocols that no published column names.
    """
    cells, protocols = list_published_cells(study), table["protocol"]
    named = protocols.isin(cells["as_protocol"])
    main = protocols.isin(listed(study["main"])) if "main" in study else ~named
    as_protocol = protocols.where(named).mask(main, "")
    keys = ["method", "dataset", "partition", "as_protocol"]
    return (
        table.assign(as_protocol=as_protocol)
        .merge(cells, how="left", on=keys)
        .drop(columns="as_protocol")
    )


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
