"""Add finished runs of a study to the tables that are kept with it, and say what these draw."""

import csv
import json
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedgrid import __version__
from fedgrid.runtime import files
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import known
from fedgrid.runtime.resolved import Run
from fedgrid.store import identity, kept
from fedgrid.store import tables as collected
from fedgrid.store.measured import find_measured
from fedgrid.study.grid import Grid, list_sources
from fedgrid.study.paths import COLLECTED

DIGITS = ".8g"  # how floats are written
RUNS_FILES = tuple(kind for kind, path in COLLECTED.items() if path.startswith("runs/"))


class Item(NamedTuple):
    """An item to keep, under one path: a run, or a file that runs share."""

    run: Run  # one of the resolved runs that it belongs to
    kinds: set[str]  # of collected tables, which the study's products read


def count_runs(paths: Iterable[str]) -> int:
    return sum(path.startswith("runs/") for path in paths)


def wanted_items(everything: Grid, study: str, scale: str, grids: list[str]) -> dict[str, Item]:
    """Return the items that the study's products read from its grids at a scale, by path."""
    grid_names = everything.studies[study]["scales"][scale]["grids"]
    for name in grids:
        known(f"grid of {study} at the {scale} scale", name, grid_names)
    texts = sorted(list_sources(everything.studies[study]))
    items: dict[str, Item] = {}
    for kind, _, grid in (text.partition("/") for text in texts):
        if kind in COLLECTED and grid in (grids or grid_names):
            for names in everything.runs(study, scale, grid):
                run = everything.resolve(names)
                item = items.setdefault(kept.item_path(kind, run), Item(run, set()))
                item.kinds.add(kind)
    return items


def is_finished(item: Item, results: Path) -> bool:
    """Whether an item is in `results`, made with today's settings."""
    kind = "runs" if item.kinds & {*RUNS_FILES} else min(item.kinds)
    return identity.is_finished(kind, item.run, results)


def keep_items(items: dict[str, Item], folder: Path, results: Path) -> dict[str, kept.Entry]:
    """Add items to those that are kept in a folder; return the index."""
    index = kept.read_index(folder)
    stored = sorted({kind for entry in index.values() for kind in kept.read_hashes(entry)})
    tables = {kind: kept.read_items(folder, kind, index) for kind in stored}
    for path, item in sorted(items.items()):
        above = 1 + max((int(entry["id"]) for entry in index.values()), default=-1)
        before = index.get(path, {"id": str(above), "kinds": ""})
        kinds = sorted(item.kinds | kept.read_hashes(before).keys())
        rows = {
            kind: read_item_rows(kind, results / kept.file_of_item(kind, path)) for kind in kinds
        }
        for kind, kind_rows in rows.items():
            tables.setdefault(kind, {})[before["id"]] = kind_rows
        hashes = {kind: kept.hash_rows(kind_rows) for kind, kind_rows in rows.items()}
        index[path] = describe_item(path, kinds[0], item.run, results) | {
            "id": before["id"],
            "kinds": kept.write_pairs(hashes),
        }
    own = {item.run["dataset"] for item in items.values() if kept.DATA in item.run}
    write_store(folder, index, tables, {name: source.text(f"datasets.{name}") for name in own})
    return index


def read_item_rows(kind: str, path: Path) -> kept.Rows:
    """Return the rows of a run's file as texts; UsageError if it is missing or damaged."""
    table = collected.read_checked(collected.READERS[kind], path)
    return [{k: write_value(v) for k, v in row.items()} for row in table.to_dict("records")]


def write_value(value: Any) -> str:
    """Write a value of a table as text: a float with eight digits, a missing one as `nan`."""
    if value is None:
        return "nan"
    return format(value, DIGITS) if isinstance(value, float) else str(value)


def describe_item(path: str, kind: str, run: Run, results: Path) -> kept.Entry:
    """Describe an item for the index, without id and kinds; for a run also what made it."""
    entry = dict.fromkeys((*kept.COLUMNS, *kept.OPTIONAL), "") | {
        "path": path,
        kept.DATA: run.get("data", ""),
        "content": identity.hash_content(kind, run),
    }
    if path.startswith("runs/"):
        entry |= collected.read_checked(read_makers, results / path / "summary.json")
    return entry


def read_makers(summary: Path) -> kept.Entry:
    facts_of_run = json.loads(summary.read_text())
    facts = {
        name: facts_of_run[name] for name in ("code", "device", "threads", "seconds", "rounds")
    }
    facts |= {"fedgrid": __version__, "torch": facts_of_run["versions"]["torch"]}
    facts["seconds"] *= "trained_as" not in facts_of_run  # a link to another run took no time
    facts["diverged"] = facts_of_run["diverged"] is not None
    facts[kept.FILES] = kept.write_pairs(facts_of_run.get(kept.FILES, {}))
    return {name: write_value(value) for name, value in facts.items()}


def write_store(
    folder: Path, index: dict, tables: dict[str, dict[str, kept.Rows]], data: dict[str, str]
) -> None:
    """Write all tables of a folder, sorted by path; they replace the old ones when all are written.

    The code of data of one's own, by name, is added to what is described already.

    The index replaces its file last, because it says which rows are kept. For this it is entered
    first, as a stack of contexts closes in reverse order.
    """
    order = [index[path] for path in sorted(index)]
    with ExitStack() as all_of:
        index_file = all_of.enter_context(files.replacing(folder / kept.INDEX))
        more = [name for name in kept.OPTIONAL if any(entry[name] for entry in order)]
        columns = [*kept.COLUMNS, *more]
        write_rows(index_file, columns, [{name: e[name] for name in columns} for e in order])
        if described := own_data.read_described(file := folder / own_data.DESCRIBED) | data:
            lines = {name: code.splitlines() for name, code in sorted(described.items())}
            written = json.dumps(lines, indent=1, ensure_ascii=False) + "\n"
            all_of.enter_context(files.replacing(file)).write_text(written, encoding="utf-8")
        for kind, by_id in tables.items():
            rows = [{"id": e["id"]} | row for e in order for row in by_id.get(e["id"], ())]
            path = folder / f"{kind}.csv"
            write_rows(all_of.enter_context(files.replacing(path)), order_columns(path, rows), rows)


def order_columns(path: Path, rows: kept.Rows) -> list[str]:
    used = dict.fromkeys(name for row in rows for name in row)
    existing = next(csv.reader(path.read_text("utf-8").splitlines())) if path.exists() else []
    return [*dict.fromkeys([*(name for name in existing if name in used), *used])]


def write_rows(path: Path, columns, rows: kept.Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def list_drawable(everything: Grid, study: str, scale: str) -> list[str]:
    """Return the products of a study whose sources are all kept at a scale."""
    about = everything.studies[study]["products"]
    return [
        product
        for product in everything.products(study, scale)
        if all(is_kept(everything, study, scale, of) for of in about[product]["from"].values())
    ]


@cache  # products share sources
def is_kept(everything: Grid, study: str, scale: str, source: str) -> bool:
    """Whether all runs of a source are kept, or the experiment that it names is."""
    kind, _, grid = source.partition("/")
    if kind not in COLLECTED:
        setting = everything.experiment(study, scale, kind)
        return bool(find_measured(study, scale, source, setting))
    index = kept.read_index(kept.store_folder(study, scale))
    runs = everything.runs(study, scale, grid)
    return bool(runs) and all(kept.find_kept(index, kind, everything.resolve(r)) for r in runs)
