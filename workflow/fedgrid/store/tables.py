"""Collect files of runs into one table: files of finished runs, and of runs kept with a study."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgrid.federation import array_files
from fedgrid.partitions import EACH_WRITER
from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError, known
from fedgrid.runtime.resolved import Fields, Names
from fedgrid.store import identity, kept
from fedgrid.study.grid import Grid
from fedgrid.study.paths import (
    COUNTED,
    OF_RUN,
    RUN,
    SUMMED,
    TEXTS,
    UNTESTED,
    collected_path,
    collecting_stage,
)
from fedgrid.study.protocol import PROTOCOL

if TYPE_CHECKING:
    import pandas as pd

warn_once = cache(cli.warn)  # several tables are of the same runs


def read_store(
    kind: str, where: str, ids: dict[str, str], results: Path
) -> dict[Path, "pd.DataFrame"]:
    """Read the tables of kept items; each has the path that its file would have in `results`.

    `where` is STUDY/SCALE. `ids` has for each id what has changed in the code since the item was
    made; the table has it in its column `code_changed`, if anything has. UsageError if nothing of
    this kind is kept for an id.
    """
    study, _, scale = where.partition("/")
    folder = kept.store_folder(study, scale)
    index = kept.read_index(folder)
    paths = {e["id"]: path for path, e in index.items() if kind in kept.read_hashes(e)}
    for item_id in ids:
        known(f"id of {kind} in {folder / kept.INDEX}", item_id, paths)
    rows = kept.read_items(folder, kind, index)
    return {
        results / kept.file_of_item(kind, paths[item_id]): parse_rows(rows[item_id]).assign(
            **({kept.CHANGED: changed} if changed else {})
        )
        for item_id, changed in ids.items()
    }


def parse_rows(rows: kept.Rows):
    import pandas as pd

    text = pd.DataFrame(rows).to_csv(index=False)
    return pd.read_csv(StringIO(text), **types_of(rows[0], ["nan"]))


def collect_finished(
    kind: str, everything: Grid, study: str, scale: str, grid: str, results: Path
) -> "pd.DataFrame | None":
    """Collect a table from those runs of a grid that are finished in `results` or kept.

    Return None if there is no such run. The column `kept` says which runs are kept. A warning
    names those that are kept with other data or settings.
    """
    runs = everything.runs(study, scale, grid)
    protocols = everything.list_protocols(everything.narrow_blocks(study, scale, grid))
    index = kept.read_index(kept.store_folder(study, scale))
    available, ids, others = [], {}, {}
    for path, names in find_files(kind, runs, protocols, results):
        run = everything.resolve(names)
        if identity.is_finished(kind, run, results):
            available.append((path, names))
        elif entry := kept.find_kept(index, kind, run):
            available.append((path, names))
            ids[entry["id"]] = kept.find_changed_code(entry, run)
        elif kind in OF_RUN and (reason := kept.find_other(index, kind, run)):
            others[RUN.format(**run["name"])] = reason
    for sentence in kept.describe_others(study, scale, others):
        warn_once(sentence)
    if not available:
        return None
    stored = read_store(kind, f"{study}/{scale}", ids, results) if ids else {}
    return join_tables(kind, available, stored, always=True)


def find_files(
    kind: str, runs: list[Names], protocols: dict[str, Fields], results: Path
) -> list[tuple[Path, dict[str, Any]]]:
    """Return the paths of runs' files of one kind, each with the names of its run.

    A file that methods share is listed once for each protocol; a partition is listed once.
    """
    by_key: dict[Any, tuple[Path, dict[str, Any]]] = {}
    for run in runs:
        protocol = protocols.get(run["protocol"], {})
        path = results / collected_path(kind, run, PROTOCOL | protocol)
        key = path if collecting_stage(kind) == "partition" else (path, run["protocol"])
        names = {**run} | {field: protocol.get(field) for field in SUMMED}
        by_key.setdefault(key, (path, names))
    return [*by_key.values()]


def join_tables(kind: str, available: list[tuple[Path, dict]], stored: dict, always: bool = False):
    """Join the tables of all files into one, whose rows have the names of their run.

    `stored` has the tables of kept runs by path. With kept runs, or with `always`, the column
    `kept` says for each row whether its run is kept.
    """
    import pandas as pd

    tables = [stored[p] if p in stored else read_checked(READERS[kind], p) for p, _ in available]
    said = [{"kept": path in stored} if stored or always else {} for path, _ in available]
    of_each = zip(available, said, tables, strict=True)
    names = pd.DataFrame([of | more | find_clients(kind, of, t) for (_, of), more, t in of_each])
    rows = names.index.repeat([len(table) for table in tables])
    joined = pd.concat(tables, ignore_index=True)
    joined = joined.drop(columns=COUNTED, errors="ignore") if kind in OF_SUMMARY else joined
    return pd.concat([joined, names.loc[rows].reset_index(drop=True)], axis=1)


OF_SUMMARY = ("runs", "seconds")  # tables that have what a run's summary says


def find_clients(kind: str, names: Mapping[str, Any], table) -> dict[str, int]:
    """Return the number of clients of a run whose protocol has `clients: writers`, if it is there.

    Every writer has samples, so the last client is in the table of a partition.
    """
    if names.get(COUNTED) != EACH_WRITER:
        return {}
    if kind in OF_SUMMARY:
        return {COUNTED: int(table[COUNTED].iloc[0])}
    is_dealt = collecting_stage(kind) == "partition"
    return {COUNTED: int(table["client"].max()) + 1} if is_dealt else {}


def read_checked(reader: Callable, path: Path):
    """Read a file with `reader`; UsageError if the file is missing or damaged."""
    try:
        return reader(path)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as problem:
        raise UsageError(f"the run in {path} cannot be read ({problem})") from problem


def read_typed(path: Path):
    """Read a run's table; the columns TEXTS stay texts, even with values such as `NA` or `007`."""
    import pandas as pd

    return pd.read_csv(path, **types_of(pd.read_csv(path, nrows=0).columns, ["", "nan"]))


def types_of(columns: Iterable[str], missing: list[str]) -> dict[str, Any]:
    """Return options to read these columns: TEXTS as they are, and `missing` as no number."""
    columns = [*columns]
    texts = dict.fromkeys([name for name in columns if name in TEXTS], str)
    numbers = dict.fromkeys([name for name in columns if name not in TEXTS], missing)
    return {"dtype": texts, "keep_default_na": False, "na_values": numbers}


def read_metrics(path: Path):
    """Read a run's metrics; `diverged` is true if its last row has a number that is not finite.

    The summary beside it says how many clients have no tests, if any, and which round is the last.
    """
    import pandas as pd

    with path.open(encoding="utf-8") as file:
        *_, last = csv.DictReader(file)
    if None in last.values():
        raise ValueError("its last row is incomplete")
    if missing := sorted({"round", "accuracy", "loss", "train_loss"} - last.keys()):
        raise KeyError(*missing)
    diverged = not all(math.isfinite(float(value or 0)) for value in last.values())
    summary = path.with_name("summary.json")
    about = json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else {}
    if not diverged and int(last["round"]) != about.get("rounds", int(last["round"])):
        raise ValueError("its last rows are missing")
    facts = {"diverged": diverged} | {
        name: about[name] for name in (COUNTED, UNTESTED) if name in about
    }
    return pd.read_csv(path).astype(float).astype({"round": int}).assign(**facts)


def read_summary(path: Path):
    """Read the values of a summary, without lists and mappings, as a table of one row."""
    import pandas as pd

    summary = json.loads(path.read_text(encoding="utf-8"))
    flat = {k: v for k, v in summary.items() if not isinstance(v, dict | list)}
    return pd.DataFrame([flat]).rename(columns={"rounds": "rounds_done"})


OF_PREDICTIONS = re.compile(r"class_name|(own_)?of_class_\d+")


def read_predictions(path: Path):
    """Read how many test images a model predicts as each class, by evaluated round.

    With the metric `confusion` there are columns with those of each class, too.
    """
    table, needed = read_typed(path), ["round", "class", "predicted"]
    others = [name for name in table if name not in needed]
    if table.empty or [*table][:3] != needed or not all(map(OF_PREDICTIONS.fullmatch, others)):
        raise ValueError("it is not a table of predictions")
    return table.astype(dict.fromkeys(needed, int))


def read_with(what: str, *columns: str) -> Callable:
    """Return a function that reads a table with rows and these columns; `what` is in its error."""

    def read(path: Path):
        table = read_typed(path)
        if table.empty or not {*columns} <= {*table}:
            raise ValueError(f"it is not a table of {what}")
        return table

    return read


def read_settings(path: Path):
    """Read the settings of a run: a row per field of its protocol and of its method's files.

    A method's file without hyper-parameters has one row with an empty field.
    """
    import pandas as pd

    run = json.loads(path.read_text(encoding="utf-8"))["run"]
    parts = {"": run["protocol"]} | run["method"]
    rows = [
        (part, field, json.dumps(v) if field else "")
        for part, fields in parts.items()
        for field, v in (fields or {"": None}).items()
    ]
    return pd.DataFrame(rows, columns=["of", "field", "value"])


def read_counts(path: Path):
    """Read the number of samples of each client and class, without zeros."""
    import numpy as np
    import pandas as pd

    held = array_files.read_arrays(path, "counts")["counts"]
    client, label = np.nonzero(held)
    return pd.DataFrame({"client": client, "class": label, "samples": held[client, label]})


def read_sizes(path: Path):
    """Read each client's number of samples: for training, for its own test, for validation."""
    import numpy as np
    import pandas as pd

    names = array_files.array_names(path)
    training = array_files.read_arrays(path, "counts")["counts"].sum(axis=1)
    table = pd.DataFrame({"client": range(len(training)), "training": training})
    for name in ("test", "validation"):
        array = f"{name}_offsets"
        given = array in names
        table[name] = np.diff(array_files.read_arrays(path, array)[array]) if given else 0
    return table


read_clients = read_with(
    "clients: does the protocol set client_test?", "round", "client", "samples", "own_accuracy"
)
WEIGHTS = ("client", "size", "R", "weight", "effective_clients")
MIXED = ("alpha", "beta", "mean", "weighted", "std", "loss", "divergence", "clients")
READERS = {
    "runs": read_metrics,
    "predictions": read_predictions,
    "clients": read_clients,
    "seconds": read_summary,
    "settings": read_settings,
    "partition": read_counts,
    "sizes": read_sizes,
    "saliency": read_with("clients and their weights", *WEIGHTS),
    "encoding": read_summary,
    "interpolation": read_with("accuracies by alpha and beta", *MIXED, "evaluate_clients"),
}
