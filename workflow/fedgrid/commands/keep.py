"""Keep the finished runs of a study with it, so that its products can be drawn without training.

    python -m fedgrid keep fedsls small
    python -m fedgrid keep fedsls small --again 3
    python -m fedgrid keep --runs results/runs/fedlmd > workflow/studies/reference/fedlmd.csv

The first command writes small tables to workflow/studies/reference/fedsls/small/ (`store/kept.py`
says what they hold) from those runs of the study's grids at this scale that are finished in
results/. Runs that are missing there, or were made with other settings, are skipped. What is kept
already stays. A run that is kept again replaces its rows, and a new one gets a new id, so that it
only adds lines. It says of how many runs of each method the code has changed since they were made.
Tables of experiments, such as fidelity, are kept in folders of their own (`store/measured.py`).

The second draws three kept runs, trains them again through Snakemake, and notes in again.csv of the
same folder whether their evaluations are the kept ones (`store/trained_again.py`).

The third prints the runs of a folder as CSV, one row per run, or with --rounds one row per
evaluation. A study that names such a file (`reference:` or `curves:`) cites the accuracies in its
tables (`report/_cited.py`).
"""

import argparse
import sys
from pathlib import Path

from fedgrid.report._cited import cite_runs
from fedgrid.runtime import cli, files
from fedgrid.runtime.names import UsageError, known
from fedgrid.store import kept, trained_again
from fedgrid.store.keeping import Item, count_runs, is_finished, keep_items, wanted_items
from fedgrid.store.measured import keep_measured
from fedgrid.study.grid import Grid, list_sources, read_grid
from fedgrid.study.paths import COLLECTED
from fedgrid.study.reading import CONFIG, check_place


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("study", nargs="?", help="a study's name")
    parser.add_argument("scale", nargs="?", help="a scale of the study")
    parser.add_argument(
        "--runs", type=Path, nargs="+", metavar="FOLDER", help="print the runs in these folders"
    )
    parser.add_argument("--rounds", action="store_true", help="with --runs: all evaluations")
    parser.add_argument("--config", type=Path, default=CONFIG, help="which has your protocols")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--grid", nargs="+", default=[], help="only the runs of these grids")
    parser.add_argument(
        "--again", type=int, metavar="N", help="train N kept runs again, and note what differs"
    )
    parser.add_argument("--seed", type=int, default=0, help="with --again: draws the runs")
    parser.add_argument("--cores", default="all", help="with --again: for Snakemake")
    asked = parser.parse_args(arguments)
    everything = read_grid(asked.config)
    if asked.runs:
        cite_runs(asked.runs, everything, asked.rounds).to_csv(sys.stdout, index=False)
    elif asked.study and asked.scale:
        keep(asked, everything)
    else:
        parser.error("give a study and a scale, or --runs")


def keep(asked: argparse.Namespace, everything: Grid) -> None:
    """Keep the finished runs of a study's grids at a scale; say how many are kept, and missing."""
    from fedgrid.report._kept import describe_code

    known("scale", asked.scale, everything.studies.named(asked.study)["scales"])
    folder = kept.store_folder(asked.study, asked.scale)
    check_place(folder)
    wanted = wanted_items(everything, asked.study, asked.scale, asked.grid)
    if asked.again is not None:
        return keep_again(asked, wanted, folder)
    there = {path: item for path, item in wanted.items() if is_finished(item, asked.results)}
    if not (keep_experiments(asked, everything) or count_runs(there)):
        raise UsageError(
            f"no finished run of {asked.study} at the {asked.scale} scale is in {asked.results}: "
            f"run `snakemake --cores all --config study={asked.study} scale={asked.scale}` first"
        )
    with files.alone(folder):  # another process may keep other runs in it
        index = keep_items(there, folder, asked.results)
    print(f"{count_runs(index)} runs are kept in {folder}")
    made = (
        (kept.find_changed_code(index[path], item.run), item.run["name"]["method"])
        for path, item in wanted.items()
        if path in index and count_runs([path])
    )
    for sentence in describe_code(made):
        print(sentence)
    missing = count_runs(wanted) - count_runs(there)
    print(f"{missing} runs of the grids are not finished in {asked.results}")


def keep_again(asked: argparse.Namespace, wanted: dict[str, Item], folder: Path) -> None:
    drawn = trained_again.draw(wanted, folder, asked.results, asked.again, asked.seed)
    file = ["--configfile", str(asked.config)] * (asked.config != CONFIG)
    settings = [f"study={asked.study}", f"scale={asked.scale}", "kept=false"]
    options = ["--cores", asked.cores, *file, "--config", *settings]
    trained_again.train(drawn, asked.results, options)
    noted = trained_again.note(drawn, folder, asked.results, asked.seed)
    for row in noted:
        far = "an accuracy that differs by {largest} at most, from round {from_round} on"
        said = "the kept evaluations" if row["same"] == "True" else far.format(**row)
        print(f"{row['path']} has {said}")
    if len(noted) < len(drawn):
        cli.fail(f"{len(drawn) - len(noted)} of {len(drawn)} runs could not be trained")


def keep_experiments(asked: argparse.Namespace, everything: Grid) -> list[str]:
    """Keep the tables of the study's experiments at a scale that are in `results`; name them."""
    study, place = everything.studies[asked.study], (asked.study, asked.scale)
    found = []
    for text in sorted(list_sources(study)):
        kind = text.partition("/")[0]
        if kind in study["scales"][asked.scale] and kind not in COLLECTED:
            here = asked.results / "studies" / asked.study / asked.scale / f"{text}.csv"
            if keep_measured(*place, text, everything.experiment(*place, kind), here):
                found.append(text)
                print(f"{text} is kept")
    return found


if __name__ == "__main__":
    cli.run(main)
