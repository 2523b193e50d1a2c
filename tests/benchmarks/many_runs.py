"""What grows with the number of runs: CPU seconds of the start, of a job, of tables and verdicts.

    python -m tests.benchmarks.many_runs --runs 81 540 2000 20000
    python -m tests.benchmarks.many_runs --runs 2000 --code /path/of/another/checkout

A study of so many runs is made in a temporary copy of the project: three seeds of one method with
many values of a hyper-parameter, on one partition. One run is trained, and the files of all others
are links to its files. Run it from the repository's root. The columns:

    dry       a dry run of the study when nothing is there
    alone     a job that trains one more run when no other run is there
    job       the same job when all runs are there
    tables    Snakemake, for the collected tables and the products when all runs are there
    nothing   Snakemake, when everything is there
    verdicts  the page of verdicts of the study
    kept      reading an index of so many kept runs

A command that fails has its last sentence instead of seconds.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from tests.benchmarks import grids, measure

SEEDS = (0, 1, 2)
PROTOCOL = {"base": "fedsls-quick", "rounds": 2, "clients": 5, "participation": 0.4, "local": 2}
PROTOCOL |= {"tail": 2, "evaluate_every": 1}
CELL = "many/digits/dir0.1"
COLUMNS = ("dry", "alone", "job", "tables", "nothing", "verdicts", "kept")
SNAKEMAKE = ("snakemake", "--workflow-profile", "workflow/profiles/default", "--cores", "1")
TRAIN = ("python", "-m", "fedgrid", "train", "--device", "cpu", "--backend", "loop")
KEPT = """
import time; from pathlib import Path; from fedgrid.store.kept import read_index
began = time.process_time(); read_index(Path("kept")); print(time.process_time() - began)
"""


def main(arguments: list[str] | None = None) -> None:
    """Measure every number of runs, and print the table as it grows."""
    made = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.many_runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--runs", type=int, nargs="+", default=[81, 540, 2000])
    made.add_argument("--code", type=Path, default=measure.ROOT, help="the checkout to measure")
    asked = made.parse_args(arguments)
    measure.ROOT = asked.code.absolute()
    print(" ".join(f"{name:>9}" for name in ("runs", *COLUMNS)), flush=True)
    for count in asked.runs:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(grids.copied(Path(folder)), count)
        cells = [found[name] for name in COLUMNS]
        texts = [f"{one:9.2f}" if isinstance(one, float) else "   failed" for one in cells]
        print(f"{count:9} {' '.join(texts)}", flush=True)
        for name, said in found.items():
            if isinstance(said, str):
                print(f"  {name}: {said}", flush=True)


def measured(project: Path, count: int) -> dict[str, float | str]:
    """Return the seconds by column of a study of so many runs."""
    methods = [f"fedprox-mu{value!r}" for value in values(count)]
    write_study(project, count)
    shown = "--config", "study=many", "device=cpu", "scale=quick"
    found = {"dry": seconds(project, *SNAKEMAKE, "--quiet", "all", "--dry-run", *shown)}
    first = [f"results/runs/{CELL}/{methods[0]}/seed{seed}/metrics.csv" for seed in SEEDS]
    checked(project, *SNAKEMAKE, "--quiet", "all", *shown, "--", *first)
    found["alone"] = seconds(project, *TRAIN, f"{CELL}/fedprox-mu7.5/seed{SEEDS[0]}")
    fill(project, methods)
    found["job"] = seconds(project, *TRAIN, f"{CELL}/fedprox-mu8.5/seed{SEEDS[0]}")
    found["tables"] = seconds(project, *SNAKEMAKE, "--quiet", "all", *shown)
    found["nothing"] = seconds(project, *SNAKEMAKE, "--quiet", "all", *shown)
    page = "python", "-m", "fedgrid", "verdicts", "--study", "many", "--out", "results/page.html"
    found["verdicts"] = seconds(project, *page)
    write_index(project / "kept", count)
    found["kept"] = float(checked(project, "python", "-c", KEPT).split()[-1])
    return found


def values(count: int) -> list[float]:
    """Return the values of the hyper-parameter."""
    return [round(0.0001 * (one + 1), 4) for one in range(-(-count // len(SEEDS)))]


def write_study(project: Path, count: int) -> None:
    """Write a study with a table, a curve, two claims and so many runs."""
    sweep = {"fedprox": {"mu": values(count)}}
    first, second = (f"fedprox-mu{one!r}" for one in values(count)[:2])
    block = {"protocol": "many", "dataset": "digits", "partition": "dir0.1", "method": "fedprox"}
    sources = {"runs": "runs/table1", "settings": "settings/table1"}
    claim = {"section": "1", "says": "The second value is better.", "least": 0}
    claim |= {"method": second, "over": first}
    about = {
        "title": "Many runs",
        "protocols": {"many": PROTOCOL},
        "scales": {"quick": {"grids": {"table1": [block | {"seed": [*SEEDS], "sweep": sweep}]}}},
        "claims": [claim],
        "products": {
            "sweep": {"from": sources, "with": {"along": "mu"}, "formats": ["csv"]},
            "claims": {"from": {"runs": "runs/table1"}},
        },
    }
    (project / "workflow/studies/many.yaml").write_text(json.dumps(about))


def fill(project: Path, methods: list[str]) -> None:
    """Give every run of the other methods files of the first one, and its checkpoint's."""
    runs, states = project / f"results/runs/{CELL}", project / f"results/checkpoints/runs/{CELL}"
    for seed, method in product(SEEDS, methods[1:]):
        trained, run = runs / methods[0] / f"seed{seed}", runs / method / f"seed{seed}"
        state = f"seed{seed}.safetensors"
        run.mkdir(parents=True)
        for path in trained.iterdir():
            os.link(path, run / path.name)
        (run / "summary.json").unlink()
        (run / "summary.json").write_text(renamed(trained / "summary.json", method))
        finished = states / method / f"{state}.finished"
        finished.mkdir(parents=True)
        os.link(run / "summary.json", finished / "summary.json")
        os.link(states / methods[0] / f"{state}.ended", states / method / f"{state}.ended")


def renamed(summary: Path, method: str) -> str:
    """Return the summary of a run as that of a run with another hyper-parameter."""
    about = json.loads(summary.read_text())
    about["run"]["name"]["method"] = method
    about["run"]["method"]["fedprox"]["mu"] = float(method.removeprefix("fedprox-mu"))
    return json.dumps(about | {"key": method})


def write_index(folder: Path, count: int) -> None:
    """Write an index of so many kept runs."""
    columns = ("id", "path", "content", "kinds", "fedgrid", "code", "device", "threads", "torch")
    columns += ("seconds", "rounds", "diverged")
    folder.mkdir()
    with (folder / "index.csv").open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            [one, f"runs/{CELL}/{one}", "c", "runs=0a", "1", "c", "d", 1, "2", 1.0, 2, "False"]
            for one in range(count)
        )


def seconds(project: Path, *command: str) -> float | str:
    """Return the CPU seconds of a command, or what it says last if it fails."""
    with measure.Clock() as clock:
        done = call(project, *command)
    return said(done) if done.returncode else clock.cpu


def checked(project: Path, *command: str) -> str:
    """Return what a command prints; it must succeed."""
    done = call(project, *command)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {said(done)}")
    return done.stdout


def call(project: Path, *command: str) -> subprocess.CompletedProcess:
    """Run a command in the project."""
    environment = grids.environment() | {"PYTHONPATH": str(project / "workflow")}
    return subprocess.run(
        command, cwd=project, env=environment, text=True, capture_output=True, check=False
    )


def said(done: subprocess.CompletedProcess) -> str:
    """Return the end of what a command says."""
    return " ".join((done.stderr or done.stdout).split())[-600:]


if __name__ == "__main__":
    sys.exit(main())
