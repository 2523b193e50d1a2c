"""Compare every result with its record: which files are altered, missing or stale.

    python -m fedgrid verify results
    python -m fedgrid verify results --config config.yaml short.yaml
    python -m fedgrid verify results --again 3

  altered     the file's checksum is not the recorded one
  missing     the record names a file that is not there
  stale       its run (by the studies and config.yaml), its code or an input has changed since it
              was made
  unknown     its protocol or method is in no study, no configuration and no file; or what it
              depends on cannot be read, such as a folder of your own data that is not there
  unrecorded  a result without a record, such as one from Snakemake's cache

Prints a line for every file that is not good, and a count. The status is 1 if a file is altered,
missing or stale. Nothing is changed; `snakemake -n` lists the jobs that Snakemake would run. Give
files that were used with Snakemake's --configfile to --config, too; later files have precedence.

With --again N it compares no records. It trains N runs, chosen by chance, once more in a temporary
folder, and says of each run whether metrics.csv, clients.csv, predictions.csv and
model.safetensors have the same bytes (`trained_again.py`). The status is 1 if one has not.
"""

from collections import Counter
from pathlib import Path

from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError
from fedgrid.store.trained_again import compared
from fedgrid.store.verifying import STATES, WRONG, verified
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.reading import CONFIG


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"))
    parser.add_argument(
        "--config", type=Path, nargs="+", default=[CONFIG], metavar="YAML",
        help="configurations with the protocols and variants of runs (default: config.yaml)",
    )  # fmt: skip
    parser.add_argument(
        "--again", type=int, metavar="N", help="train N runs again, and compare their bytes"
    )
    asked = parser.parse_args(arguments)
    if not asked.results.is_dir():
        raise UsageError(f"the folder {asked.results} does not exist: name the folder of results")
    everything = read_grid(*asked.config)
    if asked.again is not None:
        return train_again(asked.results, asked.again, everything)
    found: Counter[str] = Counter()
    for file, state, reason in verified(asked.results, everything):
        found[state] += 1
        if state != "good":
            print(f"{state:10} {file}: {reason}")
    print(", ".join(f"{found[state]} {state}" for state in STATES))
    if any(found[state] for state in WRONG):
        cli.fail(f"{asked.results} differs from its records")


def train_again(results: Path, number: int, everything: Grid) -> None:
    same = []
    for folder, is_same, said in compared(results, number, everything):
        same.append(is_same)
        print(f"{folder} {said}", flush=True)
    print(f"{sum(same)} of {len(same)} runs are the same")
    if others := same.count(False):
        cli.fail(f"{others} of {len(same)} runs are not the same")


if __name__ == "__main__":
    cli.run(main)
