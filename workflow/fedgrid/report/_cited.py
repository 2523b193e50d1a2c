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

    UsageError if there is no finished run.
    """
    summaries = sorted(path for folder in folders for path in folder.rglob("summary.json"))
    if not summaries:
        raise UsageError(
            f"no finished run was found in {', '.join(map(str, folders))}: name a folder with "
            "summary.json files, such as results/runs/<protocol>"
        )
    return (list_evaluations if by_round else list_runs)(summaries, everything)


def list_runs(summaries: list[Path], everything: Grid):
    """Return a row per run: names, accuracies in percent, machine and code."""
    import pandas as pd

    from fedgrid.analysis.published import MAKERS
    from fedgrid.analysis.scores import RUN, score_runs

    facts = read_facts(summaries, everything)
    scores = score_runs(read_metrics(summaries, facts)).round(4)
    made_with = pd.DataFrame([names | made for names, made in facts])
    return scores.merge(made_with[[*RUN, "seconds_per_round", *MAKERS]])


def list_evaluations(summaries: list[Path], everything: Grid):
    """Return a row per run and evaluation: names, accuracy in percent."""
    from fedgrid.analysis.scores import RUN

    table = read_metrics(summaries, read_facts(summaries, everything))
    table["accuracy"] = (100 * table["accuracy"]).round(4)
    return table[[*RUN, "round", "accuracy"]]


def read_facts(summaries: list[Path], everything: Grid) -> list[tuple[dict, dict]]:
    return [collected.read_checked(partial(read_fact, everything), path) for path in summaries]


def read_metrics(summaries: list[Path], facts: list[tuple[dict, dict]]):
    import pandas as pd

    metrics = [
        collected.read_checked(collected.read_metrics, path.with_name("metrics.csv"))
        for path in summaries
    ]
    return pd.concat(
        table.assign(**names) for table, (names, _) in zip(metrics, facts, strict=True)
    )


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
