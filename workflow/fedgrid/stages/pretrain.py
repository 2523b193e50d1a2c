"""Train the initial model on each client's own data, as FedSLS does before the first round."""

import logging
import shutil
import time
from pathlib import Path
from typing import Any

from fedgrid.federation import array_files
from fedgrid.federation.protocols import changed_protocol
from fedgrid.runtime import files, forced
from fedgrid.runtime.resolved import Run
from fedgrid.store.identity import identify
from fedgrid.study.command import Machine

TOGETHER = 10  # clients trained at a time

log = logging.getLogger(__name__)


def pretrain(run: Run, paths: dict[str, Path], out: Path, folder: Path, machine: Machine) -> None:
    """Train all clients into the folder `out`; `folder` has what is done if this is stopped."""
    with files.alone(folder):
        begin_forced(out, folder)
        begin(folder, identify("pretrain", run, paths).key)
        train_clients(run, paths, folder, machine)
        (folder / "run.txt").unlink()
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, out)
        forced.end(folder)


def begin_forced(out: Path, folder: Path) -> None:
    """Delete unfinished work if Snakemake forces this job and it has not begun yet."""
    if forced.is_forced("pretrain", [out]) and not forced.has_begun(folder):
        shutil.rmtree(folder, ignore_errors=True)
        forced.begin(folder)


def begin(folder: Path, key: str) -> None:
    """Keep the folder with this run's unfinished work, or make it empty."""
    note = folder / "run.txt"
    if not note.exists() or note.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note.write_text(key)


def train_clients(run: Run, paths: dict[str, Path], folder: Path, machine: Machine) -> None:
    """Train and save the clients that are not in `folder` yet."""
    import numpy as np

    from fedgrid.federation import schedule
    from fedgrid.training.build import build_engine

    protocol = run["protocol"]
    local = schedule.epochs(protocol["pretrain_epochs"])
    alone: Run = {**run, "method": {}, "protocol": changed_protocol(protocol, local)}
    engine, start = build_engine(alone, paths, machine)
    everyone = range(len(engine.federation.members))
    left = [k for k in everyone if not (folder / f"client{k}.safetensors").exists()]
    began = time.monotonic()
    for some in (left[i : i + TOGETHER] for i in range(0, len(left), TOGETHER)):
        names = ("pretrain", *engine.federation.names)
        work = schedule.work(np.array(some), engine.federation.members, alone["protocol"], *names)
        memories: list[dict[str, Any]] = [{}] * len(some)
        losses: list[float] = []
        trained = engine.train(start, work, memories, protocol["lr"])
        for which, states, loss, _ in trained:
            save(folder, some[which], states)
            losses += loss.tolist()
        log.info("clients %d to %d: loss %.4f", some[0], some[-1], sum(losses) / len(losses))
    seconds = (time.monotonic() - began) * len(everyone) / max(len(left), 1)  # estimate on resume
    (folder / "seconds.txt").write_text(f"{seconds:.3f}\n")


def save(folder: Path, clients: list[int], states: dict) -> None:
    """Write the models of these clients, stacked in `states`, one file each."""
    for i, k in enumerate(clients):
        own = {name: w[i].contiguous() for name, w in states.items()}
        with files.replacing(folder / f"client{k}.safetensors") as temporary:
            array_files.save_tensors(own, temporary)
