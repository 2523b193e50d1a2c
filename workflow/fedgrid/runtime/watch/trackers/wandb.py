"""Weights & Biases: a run of the project `fedgrid`, or of the one that WANDB_PROJECT names.

A run that resumes continues the same run there. The files of `WANDB_MODE=offline` are in
logs/wandb/; `wandb sync` sends them later.
"""

import logging
import os
from typing import Any

from fedgrid.runtime.watch.trackers import Run, numbers

PACKAGE = "wandb"
ID = 32  # characters of the run's key

log = logging.getLogger(__name__)


def tracker(run: Run, rows: list[dict[str, Any]]) -> "Online":
    import wandb

    run.logs.mkdir(parents=True, exist_ok=True)
    project = os.environ.get("WANDB_PROJECT", "fedgrid")
    quiet = wandb.Settings(console="off", silent=True)
    made = wandb.init(
        **{"project": project, "settings": quiet, "config": run.settings, "resume": "allow"},
        **{"id": run.key[:ID], "name": run.name, "group": run.name.rpartition("/")[0]},
        dir=str(run.logs),
    )
    log.info("wandb: %s", f"offline, in {run.logs / 'wandb'}" if made.offline else made.url)
    return Online(made, rows)


class Online:
    def __init__(self, run: Any, rows: list[dict[str, Any]]):
        self.run = run
        for row in rows:  # a killed run may not have sent them
            self.write(row)

    def write(self, row: dict[str, Any]) -> None:
        """Send the numbers of a row, unless the run has them already."""
        if row["round"] >= self.run.step:
            self.run.log(numbers(row), step=row["round"], commit=True)

    def close(self) -> None:
        self.run.finish()
