"""Measure fedgrid's engine beside a plain loop and other simulators, interleaved and repeated.

    python -m tests.benchmarks
    python -m tests.benchmarks --workloads A E --repeats 5
    python -m tests.benchmarks --device cuda

Run it from the repository's root. Prints a table, and writes it with a plot to --out. The status is
1 if any contestant ended at other weights than the plain loop after a round, or did not do the
measured rounds, which makes its row count nothing.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks import compare, grids, machine, measure, table, workloads

from fedgrid.runtime import gpus

PEER_PYTHON = Path(".venv-peers/bin/python")
OUTSIDE = ("flower", "pfl")  # contestants with packages of their own
WAY_ALONE = {"judged": "way", "counts": True}  # the verdict on rows that are compared no further
SPREAD = ("flower",)  # over processes: peak memory is no process's own


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    asked = parser().parse_args(arguments)
    if asked.device == "cuda":
        gpus.claim(0)  # for all contestants: each for itself would wait for the others' end
    print(machine.describe(asked.device), flush=True)
    rows, notes = [], []
    for name in asked.workloads:
        found, said = grids.measured(asked) if name == "G" else measured(name, asked)
        rows += found
        notes += said
        print(table.text(found, said), flush=True)
        table.write(rows, notes, machine.describe(asked.device), asked.out)
    wrong = [row for row in rows if not row["counts"]]
    for row in wrong:
        print(f"{row['workload']}: {row['contestant']} does not count: it computed something else")
    return 1 if wrong else 0


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = list(workloads.WORKLOADS)
    made.add_argument("--workloads", nargs="+", choices=[*names, "G"], default=names, metavar="X")
    peers = [*workloads.PEERS, *workloads.WORKLOADS["F"]["peers"]]
    made.add_argument("--peers", nargs="+", choices=peers, default=peers, metavar="PEER")
    made.add_argument("--repeats", type=int, default=5)
    made.add_argument("--rounds", type=int, help="in place of each workload's own number")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--compile", action="store_true", help="add rows with compiled local steps")
    made.add_argument(
        "--compiled-in", nargs="*", default=[], choices=("tf32", "bf16"), help="more of these rows"
    )
    made.add_argument(
        "--without-fp64",
        action="store_true",
        help="repeat no round in float64: where float32 is chaotic, judge only how far rounds lead",
    )
    made.add_argument("--out", type=Path, default=Path("results/benchmarks-engine"))
    made.add_argument(
        "--peer-python",
        type=Path,
        default=PEER_PYTHON,
        help="the Python of the environment that has Flower and pfl-research (peers.txt)",
    )
    return made


def measured(name: str, asked) -> tuple[list[dict], list[str]]:
    """A row per contestant of a workload, and notes."""
    workload = workloads.find(name, asked.device)
    rounds = asked.rounds or workload["rounds"][asked.device]
    ours = ["fedgrid" if p == "fp32" else f"fedgrid {p}" for p in workload["precisions"]]
    if asked.compile and workload["kind"] == "rounds":
        ours += ["fedgrid compiled", *(f"fedgrid compiled {p}" for p in asked.compiled_in)]
    peers = [p for p in workload["peers"] if p in asked.peers or p == workload["base"]]
    with ExitStack() as stack:
        ready, first, notes = warmed(stack, ours + peers, workload, rounds, asked)
        if workload["base"] not in [contestant.row for contestant in ready]:
            raise SystemExit("\n".join(notes))
        found = measure.interleaved(ready, asked.repeats, rounds)
        rows = [line(one, found, first, workload, rounds, asked.device) for one in ready]
        if workload["profile"]:
            notes += [f"{name}: {c.row}: {told(c)}" for c in ready if c.row not in SPREAD]
        if workload["profile"] and asked.device == "cpu":
            notes += [f"{name}: {profile(contestant, rounds)}" for contestant in ready[: len(ours)]]
    if workload["judged"] == "fp64":
        alone = [WAY_ALONE] * len(rows)
        verdicts = alone if asked.without_fp64 else repeated(rows, workload, asked)
        rows = [row | verdict for row, verdict in zip(rows, verdicts, strict=True)]
    return [row | {"counts": row["counts"] and row["done"]} for row in rows], notes


def warmed(stack: ExitStack, names: list[str], workload: dict, rounds: int, asked) -> tuple:
    """The contestants that can be measured, their first rounds by name, and notes on the others.

    On a GPU they are warmed up at once, because they compile meanwhile.
    """
    ready, first, notes = [], {}, []

    def warm(row: str) -> None:
        try:
            contestant = stack.enter_context(started(row, workload, rounds, asked))
            first[row] = contestant.play(1)
            if workloads.read(row)[-1]:
                contestant.play(rounds)  # later rounds can have stacks of other sizes
            ready.append(contestant)
        except measure.ContestantError as problem:
            notes.append(f"{workload['name']}: {row}: {problem}")

    with ThreadPoolExecutor(len(names) if asked.device == "cuda" else 1) as pool:
        list(pool.map(warm, names))
    return sorted(ready, key=lambda one: names.index(one.row)), first, notes


def started(row: str, workload: dict, rounds: int, asked) -> measure.Contestant:
    """A contestant in its process; ContestantError if there can be none."""
    python, (name, *_) = Path(sys.executable), workloads.read(row)
    if name in OUTSIDE:
        python = asked.peer_python
        if asked.device != "cpu":
            raise measure.ContestantError("measured on CPUs only")
        if not os.access(python, os.X_OK):
            raise measure.ContestantError(f"not installed: there is no {python}")
    log = asked.out / "log" / f"{workload['name']}-{row.replace(' ', '-')}.txt"
    workload = workload["name"]
    return measure.Contestant(row, workload, rounds, asked.device, python.absolute(), log)


def line(contestant, found: dict, first: dict, workload: dict, rounds: int, device: str) -> dict:
    """A contestant's row: times of all rounds, and the verdict on the first one."""
    base, answers = found[workload["base"]], found[contestant.row]
    _, precision, _ = workloads.read(contestant.row)
    initial = contestant.initial() if workload["kind"] == "rounds" else None
    names = {"workload": workload["name"], "title": workload["title"], "device": device}
    names |= {"contestant": contestant.row, "base": workload["base"], "rounds": rounds}
    row = names | compare.summed_up(answers, base)
    row |= compare.judged(first[contestant.row], first[workload["base"]], initial, precision)
    measured = [(answer["state"], base[0]["state"], initial) for answer in answers]
    row["difference_measured"] = max(compare.distance(*states) for states in measured)
    row["done"] = all(compare.is_done(*states) for states in measured)
    if contestant.row not in SPREAD:
        row |= {f"{of}_bytes": size for of, size in contestant.ask(do="peak").items()}
    return row


def repeated(rows: list[dict], workload: dict, asked) -> list[dict]:
    """The verdict on every row by a round in float64, which takes no part in the times."""
    found = {}
    for name in dict.fromkeys([workload["base"], *map(in_any, rows)]):
        with started(f"{name} fp64", workload, 1, asked) as contestant:
            try:
                found[name] = contestant.play(1)
                initial = contestant.initial()
            except measure.ContestantError as problem:
                print(f"{workload['name']}: {name} in float64: {problem}", file=sys.stderr)
    base = found[workload["base"]]
    return [
        compare.judged(found[name], base, initial, "fp64", name)
        if name in found
        else {"judged": "fp64", "counts": False}
        for name in map(in_any, rows)
    ]


def in_any(row: dict) -> str:
    """The name of a row's contestant without its precision."""
    name, _, compiled = workloads.read(row["contestant"])
    return f"{name} compiled" if compiled else name


def told(contestant) -> str:
    """Peak memory for people."""
    found = contestant.ask(do="peak")
    more = found["peak"] - found["before"] - found["dataset"]
    return (
        f"peak memory {found['peak'] / 2**20:.0f} MiB: {found['before'] / 2**20:.0f} before, "
        f"dataset {found['dataset'] / 2**20:.0f}, and {more / found['model']:.1f} models"
    )


def profile(contestant, rounds: int) -> str:
    """Shares of time for people."""
    found = contestant.ask(do="profile", rounds=rounds)
    shares = ", ".join(f"{name} {share:.1%}" for name, share in found.items())
    return f"{contestant.row} spends {shares} (goal: under 5 % outside)"


if __name__ == "__main__":
    sys.exit(main())
