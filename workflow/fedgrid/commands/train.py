"""Train one run: a method on a partition of a dataset, by a protocol, with one seed.

    python -m fedgrid train fedsls-quick/digits/dir0.1/fedavg/seed0

Writes metrics.csv (a row per evaluated round), predictions.csv (a row per class of these),
summary.json (settings, machine, seconds) and model.safetensors to --out. A checkpoint is written
every few minutes and on SIGTERM. The same command resumes from it, and its results are those of an
uninterrupted run. A run that was finished under another name is linked, and one that was finished
with fewer rounds is continued (`training/extension.py`). A run that Snakemake forces is trained
from its first round (`runtime/forced.py`).
"""

import os
from pathlib import Path

from fedgrid.federation.protocols import list_needed_stages
from fedgrid.runtime import cli, records
from fedgrid.runtime.synced import synced
from fedgrid.runtime.watch import trackers
from fedgrid.stages.train import SAVE_EVERY, train
from fedgrid.study import command
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.paths import RUN


def main(arguments: list[str] | None = None) -> records.Work | None:
    parser = command.add_machine(
        command.run_parser(__doc__, "data", "partition", "weights", "saliency", "...")
    )
    trackers.add_option(parser)
    parser.add_argument("--checkpoint", type=Path, help="default: under --results, by name")
    every = os.environ.get("FEDGRID_SAVE_EVERY", SAVE_EVERY)
    parser.add_argument("--save-every", type=seconds, default=every, metavar="SECONDS")
    asked = parser.parse_args(arguments)
    whole = command.resolve_run(asked, "train")
    paths = command.find_inputs(
        asked, whole, "data", "partition", "weights", *list_needed_stages(whole)
    )
    run = run_of_stage("train", whole)
    name = RUN.format(**run["name"])
    out = asked.out or asked.results / "runs" / name
    kept = asked.results / f"checkpoints/runs/{name}.safetensors"
    checkpoint = asked.checkpoint or (out / "checkpoint" if asked.out else kept)
    machine, told = command.choose_machine(asked), trackers.asked_for(asked, name)
    with synced(checkpoint):
        written = train(run, paths, out, checkpoint, machine, asked.save_every, asked.results, told)
    return command.describe_work("train", run, paths, *written) if written else None


def seconds(text: str) -> float:
    """Return a number of seconds from 0 on; ValueError for another one, and for none."""
    if not (given := float(text)) >= 0:
        raise ValueError
    return given


if __name__ == "__main__":
    cli.run(main)
