"""The files of a finished run: metrics, predictions, summary and model."""

import csv
import json
import logging
from pathlib import Path

import torch

from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState
from fedgrid.runtime import files, records
from fedgrid.training.rounds import MEANS, diverged

log = logging.getLogger(__name__)


def run_facts(engine: Engine, seconds: float, first: int, state: RunState, threads: int) -> dict:
    """Return the machine and speed of a run; `seconds` cover its rounds from `first` on."""
    done = {"rounds_per_second": round((state.round - first) / seconds, 3), "resumed_at": first}
    return machine_facts(engine, seconds, threads) | done


def machine_facts(engine: Engine, seconds: float, threads: int) -> dict:
    """Return the machine, versions, seconds and peak memory of a computation."""
    on_gpu = engine.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else records.processor(),
        "backend": engine.backend_name,
        "threads": threads,
        "versions": records.versions(),
        "seconds": round(seconds, 3),
        "peak_memory_mb": records.peak_memory_mb(),
        "peak_gpu_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else 0,
    }


FILES = ("model.safetensors", "summary.json", "predictions.csv", "metrics.csv")


def keep(out: Path, kept: Path) -> None:
    """Link the results under second names: Snakemake may delete the results of an interrupted job.

    The summary is the last file, so that its existence means all are there.
    """
    for name in sorted(FILES):
        files.share(out / name, kept / name)


def finished(out: Path, kept: Path, key: str) -> bool:
    """Whether exactly this run has been finished before; if so, put back its results."""
    try:
        summary = json.loads((kept / "summary.json").read_text())
    except (OSError, ValueError):
        return False
    if (summary["key"], summary["versions"]) != (key, records.versions()):
        return False
    for name in FILES:
        files.share(kept / name, out / name)
    return True


def write(out: Path, state: RunState, history: list[dict], summary: dict) -> list[Path]:
    """Write the files of a finished run, metrics.csv last; return their paths in this order."""
    history, predictions = apart(history)
    summary |= {"rounds": state.round, "diverged": diverged(history), "final": history[-1]}
    with files.replacing(out / "model.safetensors") as temporary:
        tensors = {name: tensor.contiguous() for name, tensor in state.server.items()}
        files.save_tensors(tensors, temporary)
    with files.replacing(out / "summary.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=1) + "\n")
    write_rows(out / "predictions.csv", list(predictions[0]), predictions)
    write_rows(out / "metrics.csv", list(dict.fromkeys([*history[0], *MEANS])), history)
    log.info("%s: accuracy %.4f after %d rounds", out, history[-1]["accuracy"], state.round)
    return [out / name for name in FILES]


def apart(history: list[dict]) -> tuple[list[dict], list[dict]]:
    """Return the metrics, and per evaluation and class the number of test images predicted."""
    metrics = [{n: value for n, value in row.items() if n != "predicted"} for row in history]
    predictions = [
        {"round": row["round"], "class": label, "predicted": count}
        for row in history
        for label, count in enumerate(row["predicted"])
    ]
    return metrics, predictions


def write_rows(path: Path, columns: list[str], rows: list[dict]) -> None:
    """Write a .csv; missing values stay empty."""
    with files.replacing(path) as temporary, temporary.open("w") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
