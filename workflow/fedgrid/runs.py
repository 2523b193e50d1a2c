"""A resolved run, made real: its engine, its rounds and what it leaves behind."""

import csv
import json
import logging
import math
from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path

import torch

from fedgrid import contract, federation, files, models, records, seeds, source, spec
from fedgrid.engine import Engine, Progress
from fedgrid.method import Method
from fedgrid.names import UsageError, known, registered, shown

log = logging.getLogger(__name__)


def engine(
    run: dict, paths: dict[str, Path], device: str, backend: str, threads: int
) -> tuple[Engine, Progress]:
    """The engine of a run, and the run before its first round."""
    protocol = run["protocol"]
    where = federation.prepare(device, threads, protocol["precision"])
    dtype = torch.float64 if protocol["precision"] == "fp64" else torch.float32
    data = federation.load(run, paths, where, dtype)
    clients = len(data.members)
    artifacts = {name: read_artifact(name, paths[name], where, clients) for name in spec.needs(run)}
    build = architecture(run, paths, data)
    made = Engine(build, method(run), protocol, data, backend, artifacts)
    return made, made.start(seeds.seed("model", *data.names))


def architecture(run: dict, paths: dict[str, Path], data: federation.Federation):
    """A function from a seed to the protocol's model with initial weights."""
    weights = run["protocol"]["weights"]
    file = None if weights == "none" else paths.get("weights") or Path(weights)
    shape = tuple(data.images.shape[1:])
    return lambda seed: models.build(
        run["protocol"]["model"], shape, data.counts.shape[1], file, seed
    )


def method(run: dict) -> Method:
    """The run's method: its files, combined; UsageError if its results would be mis-scored."""
    made = reduce(or_, (part(*given) for given in run["method"].items()), Method())
    if made.private:
        raise UsageError(
            f"{' with '.join(run['method'])} keeps {' and '.join(made.private)} private to each "
            "client, so the server's model, which is evaluated, never has what its clients trained "
            "there: such a method cannot be run before every client's own model is evaluated"
        )
    return made


def part(name: str, keywords: dict) -> Method:
    """What a method's file gives; UsageError if its own code fails."""
    module = f"methods.{known('method', name, registered('methods'))}"
    file = contract.imported(module)
    made = contract.called(module, "`method`", lambda: file.method(**keywords))
    if not isinstance(made, Method):
        raise UsageError(f"{source.file(module)}: `method` gives {shown(repr(made))}, no Method")
    return made


# The arrays of a stage's file: their type and shape; N is the clients, L any number of layers.
ARTIFACTS = {
    "saliency": {"contributions": ("float64", (3, 2, 2, "N", "L")), "main": ("bool", ("L",))},
    "latents": {"norms": ("float64", (3, 3, "N"))},
}


def read_artifact(
    name: str, path: Path, device: torch.device, clients: int
) -> dict[str, torch.Tensor]:
    """The numbers that the stage `name` left for the methods; UsageError if they are not those."""
    with files.whole(str(path)):
        found = files.read_arrays(path, *ARTIFACTS[name])
        sizes = {"N": clients, "L": len(found.get("main", ()))}
        for key, (dtype, axes) in ARTIFACTS[name].items():
            shape = tuple(sizes.get(axis, axis) for axis in axes)
            if (str(found[key].dtype), found[key].shape) != (dtype, shape):
                raise ValueError(f"{key} is {found[key].dtype} {found[key].shape}, not {shape}")
    return {key: torch.from_numpy(array).to(device) for key, array in found.items()}


def rounds(engine: Engine, state: Progress, history: list[dict]) -> Iterator[Progress]:
    """The run after every round, to its end; evaluations are added to `history` on the way.

    A run whose loss is no longer finite ends there (`diverged`).
    """
    protocol = engine.protocol
    if not history:
        history.append({"round": 0} | engine.evaluate(state.server))
    while state.round < protocol["rounds"] and diverged(history) is None:
        state = engine.round(state)
        if state.round % protocol["evaluate_every"] == 0 or state.round == protocol["rounds"]:
            history.append({"round": state.round} | engine.evaluate(state.server) | means(state))
            state.sums = {}
        yield state


MEANS = ("train_loss", "effective_clients")


def means(state: Progress) -> dict[str, float]:
    """What is logged, averaged over the rounds since it last was; nothing if nobody trained."""
    return {name: float(state.sums[name] / state.sums["rounds"]) for name in MEANS if state.sums}


def diverged(history: list[dict]) -> int | None:
    """The round at which a loss was no longer finite, or None."""
    for row in history:
        if not all(math.isfinite(value) for value in row.values() if isinstance(value, float)):
            return row["round"]
    return None


def facts(engine: Engine, seconds: float, first: int, state: Progress, threads: int) -> dict:
    """Where and how a run was made; `seconds` are those of its rounds, from `first` on."""
    done = {"rounds_per_second": round((state.round - first) / seconds, 3), "resumed_at": first}
    return machine(engine, seconds, threads) | done


def machine(engine: Engine, seconds: float, threads: int) -> dict:
    """On what and how fast something was computed."""
    on_gpu = engine.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else records.processor(),
        "backend": engine.local_training.__module__.rpartition(".")[2],
        "threads": threads,
        "versions": records.versions(),
        "seconds": round(seconds, 3),
        "peak_memory_mb": records.peak_memory_mb(),
        "peak_gpu_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else 0,
    }


FILES = ("model.safetensors", "predictions.csv", "metrics.csv", "summary.json")


def keep(out: Path, kept: Path) -> None:
    """The results under second names: Snakemake removes those of a job whose end it did not see.

    The summary is the last of them, and says that all are there.
    """
    for name in FILES:
        files.share(out / name, kept / name)


def finished(out: Path, kept: Path, key: str) -> bool:
    """Whether this very run has been finished; its results are put back where they belong."""
    try:
        summary = json.loads((kept / "summary.json").read_text())
    except (OSError, ValueError):
        return False
    if (summary["key"], summary["versions"]) != (key, records.versions()):
        return False
    for name in FILES:
        files.share(kept / name, out / name)
    return True


def write(out: Path, state: Progress, history: list[dict], summary: dict) -> None:
    """The files of a finished run, metrics.csv last."""
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


def apart(history: list[dict]) -> tuple[list[dict], list[dict]]:
    """The metrics, and a row per evaluation and class: how many test images were taken for it."""
    metrics = [{n: value for n, value in row.items() if n != "predicted"} for row in history]
    predictions = [
        {"round": row["round"], "class": label, "predicted": count}
        for row in history
        for label, count in enumerate(row["predicted"])
    ]
    return metrics, predictions


def write_rows(path: Path, columns: list[str], rows: list[dict]) -> None:
    """A .csv; what a row lacks stays empty."""
    with files.replacing(path) as temporary, temporary.open("w") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
