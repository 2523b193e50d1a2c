"""MLflow: a run of the experiment `fedgrid`, or of the one that MLFLOW_EXPERIMENT_NAME names.

Without MLFLOW_TRACKING_URI the runs are in logs/mlflow.db. A run that resumes continues the same
run there, which the tag `fedgrid.key` identifies.
"""

import os
import re
import time
from typing import Any

from fedgrid.runtime import files
from fedgrid.runtime.watch.trackers import Run, numbers

PACKAGE = "mlflow"
KEY = "fedgrid.key"
SCORES = ("accuracy", "own_weighted")  # of a complete server's model, or of clients' own models


def tracker(run: Run, rows: list[dict[str, Any]]) -> "Recorded":
    from mlflow import MlflowClient

    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # training waits for them
    place = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{run.logs.absolute()}/mlflow.db")
    with files.alone(run.logs / "mlflow"):  # jobs that start together would make everything twice
        client = MlflowClient(tracking_uri=place)
        return Recorded(client, begin(client, run), rows)


def begin(client: Any, run: Run) -> str:
    """Return the id of the run that an earlier process began, or else of a new one."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedgrid")
    there = client.get_experiment_by_name(name)
    experiment = there.experiment_id if there else client.create_experiment(name)
    for one in client.search_runs([experiment], f"tags.`{KEY}` = '{run.key}'", max_results=1):
        client.update_run(one.info.run_id, status="RUNNING")
        return one.info.run_id
    made = client.create_run(experiment, run_name=run.name, tags={KEY: run.key})
    for name, value in run.settings.items():
        client.log_param(made.info.run_id, name, value)
    return made.info.run_id


class Recorded:
    def __init__(self, client: Any, run: str, rows: list[dict[str, Any]]):
        self.client, self.run = client, run
        known = [one for name in SCORES for one in client.get_metric_history(run, name)]
        self.last = max((metric.step for metric in known), default=-1)
        for row in rows:  # a killed run may not have sent them
            self.write(row)

    def write(self, row: dict[str, Any]) -> None:
        """Send the numbers of a row, unless the run has them already."""
        if row["round"] > self.last:
            from mlflow.entities import Metric

            now, metrics = round(time.time() * 1000), []
            for name, value in numbers(row).items():
                taken = re.sub(r"[^/\w.\- ]", "_", name)  # a class may have any name
                metrics.append(Metric(taken, value, now, row["round"]))
            self.client.log_batch(self.run, metrics=metrics)

    def close(self) -> None:
        self.client.set_terminated(self.run)
