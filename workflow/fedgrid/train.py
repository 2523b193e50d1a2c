"""Train one run: a method on a partition of a dataset, by a protocol, with one seed.

    python -m fedgrid.train fedsls-quick/digits/dir0.1/fedavg/seed0

Writes metrics.csv (a row per evaluated round), predictions.csv (a row per class of these),
summary.json (what was run, on what, how long) and model.safetensors to --out. The state between two
rounds is saved every few minutes and on SIGTERM; the same command continues from it, and ends with
the same numbers as an uninterrupted run.
"""

import logging
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from fedgrid import cli, source, spec, stage

SAVE_EVERY = 120  # seconds between two checkpoints

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = stage.machine(stage.parser(__doc__, "data", "partition", "weights", "saliency", "..."))
    parser.add_argument("--checkpoint", type=Path, help="default: under --results, by name")
    every = os.environ.get("FEDGRID_SAVE_EVERY", SAVE_EVERY)
    parser.add_argument("--save-every", type=float, default=every, metavar="SECONDS")
    asked = parser.parse_args(arguments)
    run = spec.part("train", stage.resolve(asked, "train"))
    paths = stage.inputs(asked, run, "data", "partition", "weights", *spec.needs(run))
    name = spec.RUN.format(**run["name"])
    out = asked.out or asked.results / "runs" / name
    kept = asked.results / "checkpoints/runs" / f"{name}.safetensors"
    kept = asked.out / "checkpoint" if asked.out else kept
    train(
        *(run, paths, out, asked.checkpoint or kept),
        *(asked.device, asked.backend, asked.threads, asked.save_every),
    )


def train(
    run: dict,
    paths: dict[str, Path],
    out: Path,
    checkpoint_path: Path,
    device: str = "auto",
    backend: str = "auto",
    threads: int = 1,
    save_every: float = SAVE_EVERY,
) -> None:
    """Train a resolved run to its end and write its results, continuing from its checkpoint.

    A process that is at work on it already, such as one that outlived its killed parent, is waited
    for. What is finished is not done again, as long as it is kept beside the checkpoint.
    """
    from fedgrid import checkpoint, files, runs

    key = stage.identity("train", run, paths)
    kept = checkpoint_path.with_name(f"{checkpoint_path.name}.finished")
    with files.alone(checkpoint_path):
        places = out, kept
        files.sweep(checkpoint_path, *(place / name for place in places for name in runs.FILES))
        if runs.finished(out, kept, key):
            log.info("%s was finished before, and is not trained again", out)
        else:
            go_on(run, paths, out, checkpoint_path, key, device, backend, threads, save_every)
            runs.keep(out, kept)
        checkpoint.discard(checkpoint_path)


def go_on(run, paths, out, checkpoint_path, key, device, backend, threads, save_every) -> None:
    """`train` up to the results, by the only process that does."""
    from fedgrid import checkpoint, energy, progress, runs

    stop = Interrupt()
    engine, start = runs.engine(run, paths, device, backend, threads)
    meter = energy.Meter(engine.device)
    start, history = checkpoint.load(checkpoint_path, key, engine.device) or (start, [])
    state = start
    first, began = start.round, time.monotonic()
    saved = began
    with progress.Rounds(first, run["protocol"]["rounds"]) as shown:
        for state in runs.rounds(engine, start, history):
            shown.step(history[-1])
            if stop.asked or time.monotonic() - saved >= save_every:
                checkpoint.save(checkpoint_path, key, state, history)
                saved = time.monotonic()
            if stop.asked:
                cli.fail(f"stopped after round {state.round}: the same command continues from here")
    facts = runs.facts(engine, time.monotonic() - began, first, state, threads)
    facts["joules"] = meter.joules()
    state = replace(state, server=engine.whole(state.server))
    code = source.fingerprint(*spec.modules("train", run))
    runs.write(out, state, history, {"run": run, "code": code, "key": key} | facts)


class Interrupt:
    """Turns SIGTERM into a wish that is granted between two rounds."""

    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, number, frame) -> None:
        """Remember that somebody asked."""
        self.asked = True


if __name__ == "__main__":
    cli.run(main)
