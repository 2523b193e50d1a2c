"""Let every client train the initial model on its own data, as FedSLS does before the first round.

    python -m fedgrid.pretrain fedsls-quick/digits/dir0.1/fedsls/seed0

Writes the clients' models, client0.safetensors and so on, to the folder --out. Stopped and started
again, it goes on with the next client. The federated training itself starts from the initial model.
"""

import logging
import shutil
import time
from pathlib import Path

from fedgrid import cli, files, spec, stage

TOGETHER = 10  # clients at a time

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = stage.machine(stage.parser(__doc__, "data", "partition", "weights"))
    parser.add_argument("--checkpoint", type=Path, help="where unfinished work is kept")
    asked = parser.parse_args(arguments)
    run = stage.resolve(asked, "pretrain")
    paths = stage.inputs(asked, run, "data", "partition", "weights")
    out = asked.out or asked.results / spec.inputs(run)["pretrain"]
    folder = asked.checkpoint or out.with_name(f".{out.name}.partial")
    with files.alone(folder):
        begin(folder, stage.identity("pretrain", run, paths))
        pretrain(run, paths, folder, asked.device, asked.backend, asked.threads)
        (folder / "run.txt").unlink()
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, out)


def begin(folder: Path, key: str) -> None:
    """An empty folder for this run, or the one with its unfinished work."""
    note = folder / "run.txt"
    if not note.exists() or note.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note.write_text(key)


def pretrain(
    run: dict, paths: dict[str, Path], folder: Path, device: str, backend: str, threads: int
) -> None:
    """Train and save the clients that are not in `folder` yet."""
    import numpy as np

    from fedgrid import runs, schedule

    protocol = run["protocol"]
    local = {"local": protocol["pretrain_epochs"], "local_unit": "epochs"}
    alone = run | {"method": {}, "protocol": protocol | local}
    engine, start = runs.engine(alone, paths, device, backend, threads)
    everyone = range(len(engine.federation.members))
    left = [k for k in everyone if not (folder / f"client{k}.safetensors").exists()]
    began = time.monotonic()
    for some in (left[i : i + TOGETHER] for i in range(0, len(left), TOGETHER)):
        names = ("pretrain", *engine.federation.names)
        work = schedule.work(np.array(some), engine.federation.members, alone["protocol"], *names)
        memories, losses = [{}] * len(some), []
        trained = engine.local_training(engine, start, memories, work, protocol["lr"])
        for which, states, loss in trained:
            save(folder, some[which], states)
            losses += loss.tolist()
        log.info("clients %d to %d: loss %.4f", some[0], some[-1], sum(losses) / len(losses))
    seconds = (time.monotonic() - began) * len(everyone) / max(len(left), 1)  # also after a kill
    (folder / "seconds.txt").write_text(f"{seconds:.3f}\n")


def save(folder: Path, clients: list[int], states: dict) -> None:
    """Write the models of these clients, stacked in `states`, a file each."""
    for i, k in enumerate(clients):
        own = {name: w[i].contiguous() for name, w in states.items()}
        with files.replacing(folder / f"client{k}.safetensors", result=False) as temporary:
            files.save_tensors(own, temporary)


if __name__ == "__main__":
    cli.run(main)
