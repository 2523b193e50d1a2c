"""Write finished runs as rows of a .csv that a study names as its `reference` or under `curves`.

The tables of the study then show these accuracies beside the published ones and those of new runs.
A row says what the run was made with: device, threads, seconds per round, PyTorch's version and the
fingerprint of the code.
"""

import json
import math
from functools import partial
from pathlib import Path

from fedgrid.runtime.names import UsageError
from fedgrid.store import tables as collected
from fedgrid.study.grid import Grid
from fedgrid.study.paths import SUMMED


def cite_runs(folders: list[Path], everything: Grid, by_round: bool):
    """List the finished runs in folders, a row per run; with `by_round` a row per evaluation.

    Accuracies are in percent. UsageError if there is no finished run.
    """
    import pandas as pd

    from fedgrid.analysis.published import MAKERS
    from fedgrid.analysis.scores import RUN, score_runs

    summaries = sorted(path for folder in folders for path in folder.rglob("summary.json"))
    if not summaries:
        raise UsageError(
            f"no finished run was found in {', '.join(map(str, folders))}: name a folder with "
            "summary.json files, such as results/runs/<protocol>"
        )
    metrics, made_with = [], []
    for path in summaries:
        names, made = collected.read_checked(partial(read_fact, everything), path)
        table = collected.read_checked(collected.read_metrics, path.with_name("metrics.csv"))
        metrics.append(table.assign(**names))
        made_with.append(names | made)
    table = pd.concat(metrics)
    if by_round:
        table["accuracy"] = (100 * table["accuracy"]).round(4)
        return table[[*RUN, "round", "accuracy"]]
    makers = pd.DataFrame(made_with)[[*RUN, "seconds_per_round", *MAKERS]]
    return score_runs(table).round(4).merge(makers)


def read_fact(everything: Grid, path: Path) -> tuple[dict, dict]:
    """Read a run's names with the protocol fields SUMMED, and its machine, speed and code."""
    summary = json.loads(path.read_text())
    run = summary["run"]
    protocol = everything.protocol(run["name"]["protocol"]) | run["protocol"]
    names = run["name"] | {name: protocol[name] for name in SUMMED}
    done = summary["rounds"] - summary["resumed_at"]  # rounds in the summary's seconds
    made = {
        "seconds_per_round": round(summary["seconds"] / done, 3) if done else math.nan,
        "torch": summary["versions"]["torch"],
        **{name: summary[name] for name in ("device", "threads", "code")},
    }
    return names, made
