"""Say in a caption how many of a product's runs are kept with the study, and what made them.

It also says how many were trained again and how far they are from what is kept
(`store/trained_again.py`), or else what has changed in the code since they were made
(`store/identity.py`), and whether runs of a seed were made on different processors.
"""

from collections.abc import Iterable

import pandas as pd

from fedgrid.report._product import KEPT
from fedgrid.runtime.names import in_words
from fedgrid.store.identity import ENGINE, UNRECORDED
from fedgrid.store.kept import CHANGED, Entry, Rows
from fedgrid.store.trained_again import count_again
from fedgrid.study.paths import OF_RUN, RUN, collecting_stage
from fedgrid.study.protocol import AXES

PAIRED = ["dataset", "partition", "seed"]  # runs that are compared as pairs have these in common
NAMED = 12  # methods that a sentence names; more are counted
MAKERS = ["fedgrid", "torch", "device", "code"]  # of an entry of the index
MADE = " (fedgrid {fedgrid}, torch {torch}, {device}; code {code})"  # of what made kept runs
CHANGES = {  # of the code since kept runs were made, but for those of named files
    "": "by the code that is here now",
    ENGINE: "before a change of the engine, by the same files of the methods",
    UNRECORDED: "by code that is not recorded and differs from today's",
}
Sources = Iterable[tuple[str, pd.DataFrame]]  # collected tables with their kinds


def describe_kept(sources: Sources, index: dict[str, Entry]) -> str:
    """Write sentences for a caption: how many runs are kept, and what made them; "" if none is.

    `sources` are collected tables with their kinds. Files that runs share, such as partitions, are
    counted by themselves.
    """
    by_stage: dict[str, list[pd.DataFrame]] = {}
    for kind, table in (source for source in sources if {*AXES} <= {*source[1]}):
        what = "run" if kind in OF_RUN else f"{collecting_stage(kind)} file"
        flags = {KEPT: table.get(KEPT, False)}
        by_stage.setdefault(what, []).append(table[[*AXES]].assign(**flags))
    said = []
    for what, tables in by_stage.items():
        files = pd.concat(tables).groupby([*AXES], sort=False)[KEPT].any().reset_index()
        if files[KEPT].any():
            said.append(count_kept(what, files, index))
    return " ".join(said)


def describe_processors(sources: Sources, index: dict[str, Entry]) -> str:
    """Say that kept runs of the same data and seed were made on different processors; or "".

    The index has the processor of a kept run; collected tables do not have that of other runs.
    """
    runs = list_kept_runs(sources)
    runs["device"] = [index[path]["device"] if path in index else None for path in runs["path"]]
    several = runs.groupby(PAIRED)["device"].transform("nunique") > 1
    counts = runs.loc[several, "device"].value_counts()
    if counts.empty:
        return ""
    counted = ", ".join(f"{name}: {n} run{'s' * (n > 1)}" for name, n in counts.items())
    return (
        f"Runs of one seed were made on different processors ({counted}), whose roundings can move "
        "an accuracy by more than a point."
    )


def list_kept_runs(sources: Sources) -> pd.DataFrame:
    """Return a row per kept run, with its names and its path."""
    kept = [table[table[KEPT]][[*AXES]] for kind, table in sources if is_of_runs(kind, table)]
    runs = pd.concat(kept or [pd.DataFrame(columns=[*AXES])]).drop_duplicates()
    return runs.assign(path=[f"runs/{RUN.format(**names)}" for names in runs.to_dict("records")])


def describe_again(sources: Sources, noted: Rows) -> str:
    """Say how many kept runs were trained again, and how far they are from what is kept; or "".

    `noted` are the rows of runs that were trained again.
    """
    return count_again(noted, {*list_kept_runs(sources)["path"]}).get("said", "")


def is_of_runs(kind: str, table: pd.DataFrame) -> bool:
    return kind in OF_RUN and {KEPT, *AXES} <= {*table}


def describe_changes(sources: Sources) -> list[str]:
    """Write a sentence for each change of the code since kept runs were made."""
    tables = [
        table.loc[table[KEPT], [*AXES, CHANGED]]
        for kind, table in sources
        if is_of_runs(kind, table) and CHANGED in table
    ]
    if not tables:
        return []
    runs = pd.concat(tables).fillna({CHANGED: ""}).drop_duplicates()
    changed = runs.loc[runs[CHANGED] != "", [CHANGED, "method"]]
    return describe_code(changed.itertuples(index=False, name=None))


def describe_code(runs: Iterable[tuple[str, str]]) -> list[str]:
    """Write by whose code kept runs were made: a sentence for each kind of change since then.

    Of each run there is what has changed (`store/identity.py`), and the name of its method.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for changed, method in runs:
        found.setdefault(changed if changed in CHANGES else "files", []).append((changed, method))
    sentences = []
    for kind, some in sorted(found.items()):
        names = [*dict.fromkeys(method for _, method in some)]
        named = in_words(names) if len(names) <= NAMED else f"{len(names)} methods"
        files = sorted({file for changed, _ in some for file in changed.split()})
        how = CHANGES[kind] if kind in CHANGES else f"before a change of {in_words(files)}"
        made = f"{len(some)} kept run{'s were' if len(some) > 1 else ' was'} made"
        sentences.append(f"{made} {how}: {named}.")
    return sentences


def count_kept(what: str, table: pd.DataFrame, index: dict[str, Entry]) -> str:
    kept = table[table[KEPT]]
    plural, verb = "s" if len(table) > 1 else "", "are" if len(kept) > 1 else "is"
    paths = [f"runs/{RUN.format(**names)}" for names in kept.to_dict("records")]
    entries = [index[path] for path in paths if path in index] if what == "run" else []
    makers = pd.DataFrame(entries, columns=MAKERS)
    made = MADE.format(**makers.apply(most_frequent)) if entries else ""
    return f"Of {len(table)} {what}{plural} {len(kept)} {verb} kept with the study{made}."


def most_frequent(values: pd.Series) -> str:
    """Return the most frequent value, the first of several, and how many others there are."""
    counts = values.value_counts(sort=False)
    others = len(counts) - 1
    more = f" and {others} {'others' if others > 1 else 'other'}" if others else ""
    return f"{counts.idxmax()}{more}"
