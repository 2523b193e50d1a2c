"""The files of a finished run: metrics, predictions, clients, summary and model."""

import csv
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fedgrid.engine.client_evaluation import COLUMNS as CLIENTS
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState
from fedgrid.federation import array_files, schedule
from fedgrid.federation.protocols import list_needed_stages
from fedgrid.partitions import EACH_WRITER
from fedgrid.runtime import cli, files, machine
from fedgrid.runtime.resolved import Run
from fedgrid.store.identity import Identity
from fedgrid.study.paths import COUNTED, UNTESTED
from fedgrid.training.rounds import MEANS, diverged

log = logging.getLogger(__name__)


def run_facts(engine: Engine, seconds: float, first: int, state: RunState, threads: int) -> dict:
    """Return the machine and speed of a run, and how many of its clients never train.

    `seconds` cover its rounds from `first` on.
    """
    done = {"rounds_per_second": round((state.round - first) / seconds, 3), "resumed_at": first}
    names = engine.federation.class_names
    about: dict[str, Any] = {"clients_that_never_train": count_idle(engine)}
    if engine.protocol.get("clients") == EACH_WRITER:
        about |= {COUNTED: len(engine.federation.members)}
    about |= {UNTESTED: untested} if (untested := count_untested(engine)) else {}
    about |= {"class_names": [*names]} if names else {}
    about |= {f"bytes_{way}": count for way, count in engine.traffic.items()}
    where = machine_facts(engine, seconds, threads, state.compiled)
    return where | done | about | count_work(engine)


def count_work(engine: Engine) -> dict[str, float]:
    """Return the size of the model, and what a client computes in a round.

    Operations are left out without a round, or if those of the network cannot be counted.
    """
    sizes, each = [*map(len, engine.federation.members)], engine.operations
    around = (engine.around or 0) * sum(sizes) / len(sizes)
    counted = {} if each is None else {"flops_per_sample": each, "flops_around": around}
    return {
        "parameters": sum(entry.numel() for entry in engine.architecture.live.parameters()),
        "samples_per_round": round(schedule.mean_samples(sizes, engine.protocol), 3),
        **counted,
    }


BEFORE = "flops"  # the beginning of an array's name in the file of a stage before the first round


def count_before(run: Run, paths: Mapping[str, Path]) -> dict[str, float]:
    """Return the operations of a client, on average, in the stages before the first round.

    The name of an array may end with the options that it is for, such as `flops/f=2`. Nothing is
    returned if a stage has not counted.
    """
    options = {f"{k}={v}" for part in run["method"].values() for k, v in part.items()}
    found = []
    for stage in list_needed_stages(run):
        names = [
            n.split("/") for n in array_files.array_names(paths[stage]) if n.startswith(BEFORE)
        ]
        fits = ["/".join(name) for name in names if {*name[1:]} <= options]
        arrays = array_files.read_arrays(paths[stage], *fits).values()
        found.append(sum(map(float, arrays)) if fits else math.nan)
    return {} if math.isnan(sum(found)) else {"flops_before": sum(found)}


def count_idle(engine: Engine) -> int:
    """Return how many clients of a run never train, because they have too few samples."""
    return schedule.count_idle(map(len, engine.federation.members), engine.protocol)


def count_untested(engine: Engine) -> int:
    """Return how many clients have no test samples of their own, if others have."""
    tests = engine.federation.client_tests
    return tests.sizes.count(0) if tests else 0


def warn_of_clients(engine: Engine) -> None:
    """Write a warning into the run's log if some of its clients never train or have no tests."""
    if untested := count_untested(engine):
        cli.warn(
            f"{untested} of {len(engine.federation.members)} clients have no test samples of their "
            "own, so means over clients are over the others: raise the protocol's `client_test`"
        )
    if idle := count_idle(engine):
        log.warning(
            "%d of %d clients have too few training samples, and never train: %s",
            *(idle, len(engine.federation.members), schedule.describe_need(engine.protocol)),
        )


def machine_facts(engine: Engine, seconds: float, threads: int, compiled: bool = False) -> dict:
    """Return the machine, versions, seconds and peak memory of a computation."""
    on_gpu = engine.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else machine.processor(),
        "backend": engine.backend_name,
        **({"compiled": True} if compiled else {}),
        "threads": threads,
        "versions": machine.versions(),
        "seconds": round(seconds, 3),
        "peak_memory_mb": machine.peak_memory_mb(),
        "peak_gpu_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else 0,
    }


FILES = ("model.safetensors", "summary.json", "clients.csv", "predictions.csv", "metrics.csv")


def keep(out: Path, kept: Path) -> None:
    """Link the results under second names: Snakemake may delete the results of an interrupted job.

    The summary is the last file, so that its existence means all are there.
    """
    for name in sorted(FILES):
        files.share(out / name, kept / name)


def finished(out: Path, kept: Path, identity: Identity, others: Iterable[Path] = ()) -> Path | None:
    """Return where exactly this run was finished before, after its results were put in place.

    `kept` has the results under the run's own name, and `others` those of runs of other names, from
    which they are linked.
    """
    for place in (kept, *others):
        if identity.made(read_summary(place)):
            with suppress(OSError):  # another process may remove the other run's results
                for name in FILES:
                    files.share(place / name, out / name)
                return place
    return None


def read_summary(folder: Path) -> dict:
    """Return the summary of a finished run; empty if there is none."""
    try:
        return json.loads((folder / "summary.json").read_text())
    except (OSError, ValueError):
        return {}


def link(out: Path, kept: Path, run: Run) -> list[Path]:
    """Complete a run whose results were linked from another name; return its files.

    Its summary has the name of this run, and says as which run it was trained.
    """
    summary = read_summary(out)
    trained_as = summary.get("trained_as", summary["run"]["name"])
    with files.replacing(out / "summary.json") as temporary:
        about = summary | {"run": run, "trained_as": trained_as}
        temporary.write_text(json.dumps(about, indent=1) + "\n")
    keep(out, kept)
    return [out / name for name in FILES]


def write(out: Path, state: RunState, history: list[dict], summary: dict) -> list[Path]:
    """Write the files of a finished run, metrics.csv last; return their paths in this order."""
    metrics, predictions, clients = apart(history, summary.get("class_names", ()))
    summary |= {"rounds": state.round, "diverged": diverged(metrics), "final": metrics[-1]}
    with files.replacing(out / "model.safetensors") as temporary:
        tensors = {name: tensor.contiguous() for name, tensor in state.server.items()}
        array_files.save_tensors(tensors, temporary)
    with files.replacing(out / "summary.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=1) + "\n")
    write_rows(out / "clients.csv", columns(clients, first=CLIENTS), clients)
    write_rows(out / "predictions.csv", columns(predictions, first=PREDICTIONS), predictions)
    write_rows(out / "metrics.csv", columns(metrics, last=MEANS), metrics)
    log.info("%s: finished after %d rounds: %s", out, state.round, shown(metrics[-1]))
    return [out / name for name in FILES]


PREDICTIONS = ("round", "class", "predicted")
# The beginnings of the columns with the samples of each class, by the name of the confusion.
OF_CLASS = {"confusion": "of_class_", "own_confusion": "own_of_class_"}


def apart(
    history: list[dict], classes: Sequence[str] = ()
) -> tuple[list[dict], list[dict], "ClientTable"]:
    """Return the metrics by round, the images predicted by round and class, and the clients.

    `classes` has the names of the classes, if they have some.
    """
    listed = ("predicted", "clients", "logged", *OF_CLASS)
    metrics = [{n: value for n, value in row.items() if n not in listed} for row in history]
    predictions = [
        dict(zip(PREDICTIONS, (row["round"], label, count), strict=True))
        | ({"class_name": classes[label]} if classes else {})
        | {
            f"{beginning}{of}": counts[label]
            for name, beginning in OF_CLASS.items()
            for of, counts in enumerate(row.get(name) or ())
        }
        for row in history
        for label, count in enumerate(row.get("predicted", ()))
    ]
    return metrics, predictions, ClientTable(history)


class ClientTable(Iterable[dict]):
    """The rows of clients in all evaluations; they are read one after the other."""

    def __init__(self, history: list[dict]):
        self.history = history

    def __iter__(self) -> Iterator[dict]:
        for row in self.history:
            for client in row.get("clients", ()):
                yield {"round": row["round"]} | client


def columns(rows: Iterable[dict], first: Iterable[str] = (), last: Iterable[str] = ()) -> list[str]:
    """Return the names in the rows in their order, with some names first and last."""
    names = dict.fromkeys((*first, *(name for row in rows for name in row)))
    return [*(name for name in names if name not in last), *last]


def shown(row: dict) -> str:
    """Return a run's last accuracy, in words."""
    name = "accuracy" if row["accuracy"] is not None else "own_weighted"
    return f"{name} {row[name]:.4f}" if name in row else "no accuracy"


def write_rows(path: Path, columns: list[str], rows: Iterable[dict]) -> None:
    """Write a .csv; missing values stay empty."""
    errors = "backslashreplace"  # names may be no text of Unicode
    with files.replacing(path) as temporary, temporary.open("w", -1, "utf-8", errors) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
