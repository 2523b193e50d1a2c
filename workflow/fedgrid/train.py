"""Train one run: a method on a partition of a dataset, by a protocol, with one seed.

    python -m fedgrid.train fedsls-quick/digits/dir0.1/fedavg/seed0

Writes metrics.csv (a row per evaluated round), predictions.csv (a row per class of these),
summary.json (settings, machine, seconds) and model.safetensors to --out. A checkpoint is written
every few minutes and on SIGTERM. The same command resumes from it, and its results are those of an
uninterrupted run.
"""

import logging
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from fedgrid.runtime import cli, records, source
from fedgrid.study.command import (
    Machine,
    add_machine,
    find_inputs,
    machine_of,
    resolve_run,
    run_parser,
    work_key,
    work_on,
)
from fedgrid.study.jobs import needed_stages, stage_modules
from fedgrid.study.paths import RUN
from fedgrid.study.protocol import run_of_stage

SAVE_EVERY = 120  # seconds between two checkpoints

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> records.Work | None:
    """Run the command."""
    parser = add_machine(run_parser(__doc__, "data", "partition", "weights", "saliency", "..."))
    parser.add_argument("--checkpoint", type=Path, help="default: under --results, by name")
    every = os.environ.get("FEDGRID_SAVE_EVERY", SAVE_EVERY)
    parser.add_argument("--save-every", type=float, default=every, metavar="SECONDS")
    asked = parser.parse_args(arguments)
    run = run_of_stage("train", resolve_run(asked, "train"))
    paths = find_inputs(asked, run, "data", "partition", "weights", *needed_stages(run))
    name = RUN.format(**run["name"])
    out = asked.out or asked.results / "runs" / name
    kept = asked.results / "checkpoints/runs" / f"{name}.safetensors"
    kept = asked.out / "checkpoint" if asked.out else kept
    places = out, asked.checkpoint or kept
    written = train(run, paths, *places, machine_of(asked), asked.save_every)
    return work_on(run, paths, *written) if written else None


def train(
    run: dict,
    paths: dict[str, Path],
    out: Path,
    checkpoint_path: Path,
    machine: Machine,
    save_every: float = SAVE_EVERY,
) -> list[Path]:
    """Train a resolved run to its end; return the files that it wrote, none if it was finished.

    A run resumes from its checkpoint. If another process trains it already, such as a child of a
    killed parent, this one waits. A finished run is not trained again while the copy of its results
    beside the checkpoint exists.
    """
    from fedgrid.runtime import files
    from fedgrid.training import checkpoint, results

    key = work_key("train", run, paths)
    kept = checkpoint_path.with_name(f"{checkpoint_path.name}.finished")
    with files.alone(checkpoint_path):
        places = out, kept
        files.sweep(checkpoint_path, *(place / name for place in places for name in results.FILES))
        if results.finished(out, kept, key):
            log.info("%s was finished before, and is not trained again", out)
            written = []
        else:
            saved = checkpoint.Saved(checkpoint_path, key, save_every)
            state, history, facts = run_rounds(run, paths, saved, machine)
            written = results.write(out, state, history, {"run": run, "key": key} | facts)
            results.keep(out, kept)
        checkpoint.discard(checkpoint_path)
    return written


def run_rounds(run: dict, paths: dict[str, Path], saved, machine: Machine) -> tuple:
    """Return the state after the last round, all evaluations, and facts for the summary."""
    from fedgrid.runtime import energy, progress
    from fedgrid.training import results, rounds
    from fedgrid.training.build import build_engine

    stop = Interrupt()
    engine, start = build_engine(run, paths, machine)
    meter = energy.Meter(engine.device)
    start, history = saved.load(engine.device) or (start, [])
    state, began = start, time.monotonic()
    with progress.Rounds(start.round, run["protocol"]["rounds"]) as shown:
        for state in rounds.rounds(engine, start, history):
            shown.step(history[-1])
            saved.keep(state, history, now=stop.asked)
            if stop.asked:
                cli.fail(f"stopped after round {state.round}: the same command resumes from here")
    seconds = time.monotonic() - began
    facts = results.run_facts(engine, seconds, start.round, state, machine.threads)
    facts |= {"joules": meter.joules(), "code": source.fingerprint(*stage_modules("train", run))}
    return replace(state, server=engine.complete(state.server)), history, facts


class Interrupt:
    """Handles SIGTERM: training stops after the current round."""

    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, number, frame) -> None:
        """Request a stop after the current round."""
        self.asked = True


if __name__ == "__main__":
    cli.run(main)
