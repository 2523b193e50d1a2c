"""The SHA-256 of what quick runs leave, to show that a change of the code changed no result.

    python -m tests.hashes before.txt            # before the change: half an hour
    python -m tests.hashes after.txt --against before.txt

It makes, in a temporary copy of the project, one quick run of every method and variant of every
study in both backends, and the quick tables and claims with all the runs that they need. The list
has a line for each file: its hash and its path. With --against it prints every line that differs,
and ends with an error if there is one.
"""

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from tests.conftest import ENVIRONMENT, copied

from fedgrid.runtime.names import listed

STUDIES = Path(__file__).parent.parent / "workflow/studies"
PRODUCTS = ("fedsls/quick/table1", "fedsls/quick/claims", "fedlmd/quick/table3")
PRODUCTS += ("fedlmd/quick/claims",)
AXES = ("protocol", "dataset", "partition", "method")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("list", type=Path, help="where the hashes are written")
    parser.add_argument("--against", type=Path, help="an earlier list to compare with")
    parser.add_argument("--cores", default="1", help="default: 1")
    asked = parser.parse_args()
    lines = [line for backend in ("loop", "stacked") for line in hashed(backend, asked.cores)]
    asked.list.write_text("".join(f"{line}\n" for line in lines))
    if asked.against:
        sys.exit(compare(asked.against.read_text().splitlines(), lines))


def hashed(backend: str, cores: str) -> list[str]:
    """A line for every file that the runs of a backend leave; tables are made with `loop` alone."""
    products = [f"results/studies/{name}.csv" for name in PRODUCTS * (backend == "loop")]
    with TemporaryDirectory() as folder:
        copied(Path(folder))
        command = ["snakemake", "--cores", cores, "--quiet", "all"]
        command += ["--config", f"backend={backend}", "device=cpu", "--"]
        subprocess.run([*command, *targets(), *products], cwd=folder, env=ENVIRONMENT, check=True)
        made = [*targets(), *(t.replace("metrics.csv", "model.safetensors") for t in targets())]
        contents = {f: Path(folder, f).read_bytes() for f in sorted([*made, *products])}
    return [f"{hashlib.sha256(of).hexdigest()}  {backend} {f}" for f, of in contents.items()]


def targets() -> list[str]:
    """One run of every method that a quick grid has, in the first setting that names it."""
    found = {}
    for path in sorted(STUDIES.glob("*.yaml")):
        grids = yaml.safe_load(path.read_text())["scales"]["quick"]["grids"].values()
        for block in (block for grid in grids for block in grid):
            for method in listed(block["method"]):
                names = [listed(block[axis])[0] for axis in AXES[:3]]
                found.setdefault((path.stem, method), "/".join((*names, method)))
    return sorted({f"results/runs/{names}/seed0/metrics.csv" for names in found.values()})


def compare(before: list[str], after: list[str]) -> int:
    """Print what differs; 1 if something does."""
    differing = sorted({*before} ^ {*after}, key=lambda line: line.split()[1:])
    for line in differing:
        print("before" if line in before else "after ", line)
    print(f"{len({*before} & {*after})} of {len(before)} files have the same bytes")
    return int(bool(differing))


if __name__ == "__main__":
    main()
