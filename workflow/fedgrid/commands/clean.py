"""List what can be deleted in the folder of results, and delete it if asked.

    python -m fedgrid clean
    python -m fedgrid clean --delete
    python -m fedgrid clean --delete states runs/old-protocol

The first command deletes nothing. The second deletes what nothing is lost with: `leftovers` and
`notes`. The third deletes the kinds that it names, and `runs` stands for all `runs/...`. What
fedgrid did not write is never deleted, nor is anything behind a link to a folder. The runs of the
grids of all studies stay, with those that the configuration asks for; names that were given on a
command line only are in no grid.
"""

import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError, known
from fedgrid.store import deletable
from fedgrid.study.reading import CONFIG

LOST = {
    "leftovers": "nothing: incomplete files of killed processes, and locks that no process holds",
    "notes": "nothing: notes on files that are gone, and arguments of commands",
    "compiled": "programs of torch's compiler, which takes about a minute to make each again",
    "checkpoints": "the rounds that unfinished runs have done so far",
    "states": "the last states of finished runs, which can then not get more rounds",
    "copies": "second names of finished runs whose results are deleted: they are trained again",
    "inputs": "partitions, pretraining, saliencies and latents of no grid; they can be made again",
    "logs": "logs and times of runs that are gone, and Snakemake's own logs",
    "runs": "runs that no grid has, with their states and logs",
}
SAFE = ("leftovers", "notes")
UNITS = ("B", "kB", "MB", "GB", "TB")
Found = dict[str, list[Path]]  # files by kind


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument(
        "--config", type=Path, nargs="+", default=[CONFIG], help="which add runs to the studies'"
    )
    parser.add_argument(
        "--delete", nargs="*", metavar="KIND", help=f"default: {' and '.join(SAFE)}"
    )
    asked = parser.parse_args(arguments)
    if not asked.results.is_dir():
        raise UsageError(f"the folder {asked.results} does not exist: name the folder of results")
    results = Path(os.path.abspath(asked.results))  # Snakemake's folder is beside it
    found = deletable.find_deletable(results, deletable.find_wanted(asked.config))
    if asked.delete is None:
        print(described(found))
        return
    kinds = chosen(asked.delete or SAFE, found)
    deletable.refuse_work(results)
    print(table({kind: found[kind] for kind in kinds}))
    deletable.remove_files((path for kind in kinds for path in found[kind]), results)
    print("deleted")


def chosen(kinds: Iterable[str], found: Found) -> list[str]:
    """Return the kinds of what is to be deleted; UsageError for one that there is not."""
    for kind in kinds:
        known("kind to delete", kind, [*LOST, *found])
    return [one for one in found if one in kinds or one.partition("/")[0] in kinds]


def described(found: Found) -> str:
    if not found:
        return "there is nothing to delete"
    return (
        f"{table(found)}\n`--delete` deletes {' and '.join(SAFE)}; name any other kind, such as "
        f"`--delete {[*found][-1]}`"
    )


def table(found: Found) -> str:
    """Return a row for each kind: number of files, disk that is freed, what is lost."""
    rows = [("kind", "files", "frees", "what is lost")]
    for kind, paths in (found | {"total": [*chain(*found.values())]}).items():
        lost = LOST.get(kind.partition("/")[0], "")
        rows.append((kind, str(len(paths)), in_units(freed(paths)), lost))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{kind:{widths[0]}}  {number:>{widths[1]}}  {size:>{widths[2]}}  {lost}".rstrip()
        for kind, number, size, lost in rows
    )


def freed(paths: list[Path]) -> int:
    """Return the bytes of files on the disk; one that has other names, too, frees nothing."""
    names: dict[tuple[int, int], list[os.stat_result]] = {}
    for path in paths:
        about = path.stat()
        names.setdefault((about.st_dev, about.st_ino), []).append(about)
    alone = (of[0] for of in names.values() if of[0].st_nlink <= len(of))
    return sum(about.st_blocks * 512 for about in alone)


def in_units(size: float) -> str:
    *smaller, largest = UNITS
    for unit in smaller:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == UNITS[0] else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {largest}"


if __name__ == "__main__":
    cli.run(main)
