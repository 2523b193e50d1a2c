"""Keep the finished runs of a study with it, so that its products can be drawn without training.

    python -m fedgrid keep fedsls small

writes small tables to workflow/studies/reference/fedsls/small/ (`store/kept.py` says what they
hold) from those runs of the study's grids at this scale that are finished in results/. Runs that
are missing there, or were made with other settings, are skipped. What is kept already stays. A run
that is kept again replaces its rows, and a new one gets a new id, so that it only adds lines.
"""

from pathlib import Path

from fedgrid.runtime import cli, files
from fedgrid.runtime.names import UsageError, known
from fedgrid.store import kept
from fedgrid.store.keeping import count_runs, is_finished, keep_items, wanted_items
from fedgrid.study.grid import configured


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = cli.parser(__doc__)
    parser.add_argument("study", help="a study's name")
    parser.add_argument("scale", help="a scale of the study")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--grid", nargs="+", default=[], help="only the runs of these grids")
    asked = parser.parse_args(arguments)
    everything = configured()
    scales = everything.studies[known("study", asked.study, everything.studies)]["scales"]
    known("scale", asked.scale, scales)
    wanted = wanted_items(everything, asked.study, asked.scale, asked.grid)
    there = {path: item for path, item in wanted.items() if is_finished(item, asked.results)}
    if not count_runs(there):
        raise UsageError(
            f"no finished run of {asked.study} at the {asked.scale} scale is in {asked.results}: "
            f"run `snakemake --cores all --config study={asked.study} scale={asked.scale}` first"
        )
    folder = kept.store_folder(asked.study, asked.scale)
    with files.alone(folder):  # another process may keep other runs in it
        index = keep_items(there, folder, asked.results)
    missing = count_runs(wanted) - count_runs(there)
    print(f"{count_runs(index)} runs are kept in {folder}")
    print(f"{missing} runs of the grids are not finished in {asked.results}")


if __name__ == "__main__":
    cli.run(main)
