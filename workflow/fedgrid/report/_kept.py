"""Say in a caption how many of a product's runs are kept with the study, and what made them."""

from collections.abc import Iterable

import pandas as pd

from fedgrid.store.kept import Entry
from fedgrid.study.paths import OF_RUN, RUN, collecting_stage
from fedgrid.study.protocol import AXES

KEPT = "kept"  # the column of a collected table, and that of a product


def describe_kept(sources: Iterable[tuple[str, pd.DataFrame]], index: dict[str, Entry]) -> str:
    """Write sentences for a caption: how many runs are kept, and what made them; "" if none is.

    `sources` are collected tables with their kinds. Files that runs share, such as partitions, are
    counted by themselves.
    """
    sources = [(kind, table) for kind, table in sources if {*AXES} <= {*table}]
    by_stage: dict[str, list[pd.DataFrame]] = {}
    for kind, table in sources:
        what = "run" if kind in OF_RUN else f"{collecting_stage(kind)} file"
        flags = {KEPT: table.get(KEPT, False)}
        by_stage.setdefault(what, []).append(table[[*AXES]].assign(**flags))
    counted = {
        what: pd.concat(tables).groupby([*AXES], sort=False)[KEPT].any().reset_index()
        for what, tables in by_stage.items()
    }
    return " ".join(
        count_kept(what, table, index) for what, table in counted.items() if table[KEPT].any()
    )


def count_kept(what: str, table: pd.DataFrame, index: dict[str, Entry]) -> str:
    """Write the sentence about kept runs, or kept files; `table` has a row for each."""
    kept = table[table[KEPT]]
    plural, verb = "s" if len(table) > 1 else "", "are" if len(kept) > 1 else "is"
    paths = [f"runs/{RUN.format(**names)}" for names in kept.to_dict("records")]
    entries = [index[path] for path in paths if path in index] if what == "run" else []
    made = f" ({describe_makers(entries)})" if entries else ""
    return f"Of {len(table)} {what}{plural} {len(kept)} {verb} kept with the study{made}."


def describe_makers(entries: list[Entry]) -> str:
    """Write the versions, machine and code that made runs; of several the most frequent one."""
    fedgrid, torch, device, code = (
        most_frequent([entry[name] for entry in entries])
        for name in ("fedgrid", "torch", "device", "code")
    )
    return f"fedgrid {fedgrid}, torch {torch}, {device}; code {code}"


def most_frequent(values: list[str]) -> str:
    """Return the most frequent value, the first of several, and how many others there are."""
    counts = pd.Series(values).value_counts(sort=False)
    others = len(counts) - 1
    more = f" and {others} {'others' if others > 1 else 'other'}" if others else ""
    return f"{counts.idxmax()}{more}"
