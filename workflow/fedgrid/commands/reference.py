"""Print the results of finished runs as CSV, one row per run, to keep with a study.

    python -m fedgrid reference results/runs/fedlmd > workflow/studies/reference/fedlmd.csv

A study that names the file (`reference:`) has these accuracies in its tables, beside those of the
runs at hand and the published ones. A row says what the run was made with: device, threads, seconds
per round, PyTorch's version and the fingerprint of the code. With --rounds there is a row per
evaluation, to look at the curves.
"""

import json
import math
import sys
from functools import partial
from pathlib import Path

from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError
from fedgrid.store import tables as collected
from fedgrid.study.grid import Grid, configured
from fedgrid.study.paths import SUMMED


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = cli.parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or folders with runs")
    parser.add_argument(
        "--config", type=Path, default=Path("config.yaml"), help="which has their protocols"
    )
    parser.add_argument("--rounds", action="store_true", help="a row per evaluation")
    asked = parser.parse_args(arguments)
    summaries = sorted(path for folder in asked.runs for path in folder.rglob("summary.json"))
    if not summaries:
        raise UsageError(
            f"no finished run was found in {', '.join(map(str, asked.runs))}: name a folder with "
            "summary.json files, such as results/runs/<protocol>"
        )
    table = rounds if asked.rounds else rows
    table(summaries, configured(asked.config)).to_csv(sys.stdout, index=False)


def rows(summaries: list[Path], everything: Grid):
    """Return a row per run: names, accuracies in percent, machine and code."""
    import pandas as pd

    from fedgrid.analysis.published import MAKERS
    from fedgrid.analysis.scores import CELL, score_runs

    facts = read(summaries, everything)
    scores = score_runs(evaluations(summaries, facts)).round(4)
    made_with = pd.DataFrame([names | made for names, made in facts])
    keys = [*CELL, "seed"]
    return scores.merge(made_with[[*keys, "seconds_per_round", *MAKERS]])


def rounds(summaries: list[Path], everything: Grid):
    """Return a row per run and evaluation: names, accuracy in percent."""
    from fedgrid.analysis.scores import CELL

    table = evaluations(summaries, read(summaries, everything))
    table["accuracy"] = (100 * table["accuracy"]).round(4)
    return table[[*CELL, "seed", "round", "accuracy"]]


def read(summaries: list[Path], everything: Grid) -> list[tuple[dict, dict]]:
    """Return the facts of every run."""
    return [collected.read(partial(fact, everything), path) for path in summaries]


def evaluations(summaries: list[Path], facts: list[tuple[dict, dict]]):
    """Return the metrics of all runs, with their names."""
    import pandas as pd

    metrics = [
        collected.read(collected.metrics, path.with_name("metrics.csv")) for path in summaries
    ]
    return pd.concat(
        table.assign(**names) for table, (names, _) in zip(metrics, facts, strict=True)
    )


def fact(everything: Grid, path: Path) -> tuple[dict, dict]:
    """Return a run's names with collected protocol fields, and its machine, speed and code."""
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


if __name__ == "__main__":
    cli.run(main)
