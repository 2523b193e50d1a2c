"""Review the bundle of a paper: checksums, tables from kept runs, and runs that are trained again.

    python -m fedgrid review my_paper-small.zip --again 3

This unpacks the archive into a folder beside it, and compares all files with their checksums. It
draws every table and figure from the kept runs, and compares each CSV file byte by byte with that
in the bundle. With `--again N` it trains N kept runs again, for which the data are needed, and says
how far they are from what is kept; `--seed` chooses which. A folder in place of the archive is
reviewed as it is. The code in the bundle is run.
"""

from pathlib import Path

from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError
from fedgrid.store import bundled


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("bundle", type=Path, help="an archive of `fedgrid bundle`, or its folder")
    parser.add_argument("--again", type=int, default=0, metavar="N", help="train N runs again")
    parser.add_argument("--seed", type=int, default=0, help="with --again: draws the runs")
    parser.add_argument("--cores", default="all", help="for Snakemake")
    asked = parser.parse_args(arguments)
    bundle = asked.bundle
    if not bundle.is_dir():
        bundle = bundled.unpack(bundle, bundle.parent)
    if altered := bundled.find_altered(bundle):
        raise UsageError(
            f"{len(altered)} files are missing, altered or unknown; the first is {altered[0]}"
        )
    print(f"all files of {bundle} have their checksums")
    differing = []
    for place in sorted((bundle / bundled.MADE).glob("*/*")):
        study, scale = place.parts[-2:]
        for name, same in bundled.redraw(bundle, study, scale, asked.cores).items():
            print(f"{name} {'has the same numbers' if same else 'differs'}")
            differing += [] if same else [name]
        if asked.again:
            bundled.train_again(bundle, study, scale, asked.again, asked.seed, asked.cores)
    if differing:
        cli.fail(f"these differ from what is in the bundle: {', '.join(differing)}")


if __name__ == "__main__":
    cli.run(main)
