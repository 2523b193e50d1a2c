r"""Gather the runs of a grid into one table: a row per run and evaluated round.

    python -m fedgrid.collect '[{"protocol": ["fedsls-quick"], ...}]' \
        --protocols '{"fedsls-quick": {"rounds": 40, "tail": 10}}' --out runs.csv

The grid is a list of blocks, each with a list of names for every axis of a run.
"""

import json
from pathlib import Path

from fedgrid import cli, files, spec
from fedgrid.names import UsageError


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = cli.parser(__doc__)
    parser.add_argument("grid", help="the blocks of the grid as JSON")
    parser.add_argument("--protocols", type=json.loads, default={}, help="columns to add, as JSON")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    import pandas as pd

    try:
        runs = [run for block in json.loads(asked.grid) for run in spec.runs_of(block)]
    except (json.JSONDecodeError, KeyError, TypeError) as problem:
        raise UsageError(f"the grid is not a list of blocks in JSON: {problem}") from None
    if not runs:
        raise UsageError("the grid has no runs")
    folder = asked.results / "runs"
    table = pd.concat(
        [read(folder, run).assign(**asked.protocols.get(run["protocol"], {})) for run in runs]
    )
    with files.replacing(asked.out) as temporary:
        table.to_csv(temporary, index=False)


def read(folder: Path, run: dict):
    """The metrics of one run with its names, and whether it diverged: ended in an infinite loss."""
    import numpy as np
    import pandas as pd

    path = folder / spec.RUN.format(**run) / "metrics.csv"
    try:
        metrics = pd.read_csv(path)
        last = metrics[["loss", "train_loss"]].iloc[-1]
    except (OSError, ValueError, KeyError, IndexError) as problem:
        raise UsageError(f"the run in {path} cannot be read ({problem})") from problem
    return metrics.assign(**run, diverged=not np.isfinite(last).all())


if __name__ == "__main__":
    cli.run(main)
