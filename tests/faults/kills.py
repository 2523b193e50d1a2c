"""Kill training again and again, and see that it ends with the bytes of a run that nobody killed.

    python -m tests.faults.kills --times 100

Every life of a run is a forked process of its own, ended by SIGKILL: after a random time, or at its
n-th operation on a file (opening, renaming, removing, locking), for every n there is, or with
`--kinds` for one of each kind. The last life ends by itself. Its metrics, predictions and model are
compared byte by byte, and nothing else may be left but the last state: no checkpoint, no lock, no
temporary file.

With `--compile` the lives train stacks with compiled steps, whose code is in one folder for all of
them: a kill may hit a life that compiles. Of all operations, some that are evenly spread are tried.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import torch

from fedgrid.commands import data, partition, pretrain, saliency
from fedgrid.federation.protocols import list_needed_stages
from fedgrid.stages.train import train as train_run
from fedgrid.study.command import COMPILED, Machine
from fedgrid.study.grid import Grid
from fedgrid.study.paths import input_paths
from fedgrid.study.protocol import AXES
from fedgrid.study.reading import read_studies

METHODS = ("moon", "scaffold", "fedau", "fedsls", "fedsls_dynamic")
OPERATIONS = {"open", "os.rename", "os.remove", "os.link", "fcntl.flock"}
RESULTS = ("metrics.csv", "predictions.csv", "model.safetensors")
PROTOCOL = {"base": "fedsls-quick", "rounds": 9, "clients": 5, "participation": 0.6, "local": 1}
PROTOCOL |= {"tail": 2, "evaluate_every": 3}
# One program of few operations: without code that was kept, each life compiles it for a minute.
QUICK = {"model": "mlp", "local_unit": "steps", "local": 2, "momentum": 0.0, "weight_decay": 0.0}
QUICK |= {"augment": []}
Choice = Callable[[list[str]], Iterable[int]]  # kinds of all operations -> numbers of some


class Subject:
    """A run that is trained in lives, with compiled steps if `code` has a folder for them."""

    def __init__(self, method: str, results: Path, place: Path, code: Path | None = None):
        protocol = PROTOCOL | (QUICK if code else {})
        everything = Grid(read_studies(), {"protocols": {"killed": protocol}})
        names = ("killed", "digits", "dir0.1", method, 0)
        self.run = everything.resolve(dict(zip(AXES, names, strict=True)))
        wanted = ("data", "partition", *list_needed_stages(self.run))
        self.paths = {name: results / input_paths(self.run)[name] for name in wanted}
        self.out, self.checkpoint = place / "out", place / "kept" / "checkpoint"
        self.code = code
        compiling = {"backend": "stacked", "compile": "on"} if code else {}
        self.machine = Machine("cpu", **compiling)

    def live(self, before: Callable[[], None] = lambda: None) -> int:
        """Fork a life; its process id. `before` is called in it first."""
        child = os.fork()
        if not child:
            code = 1
            try:
                before()
                os.environ[COMPILED] = str(self.code or "")
                train_run(
                    self.run, self.paths, self.out, self.checkpoint, self.machine, save_every=0
                )
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        return child

    def bytes(self) -> dict[str, bytes]:
        """The results."""
        return {name: (self.out / name).read_bytes() for name in RESULTS}

    def left(self) -> list[str]:
        """Files that should not be there."""
        known = {*RESULTS, "summary.json", "clients.csv"}  # beside the checkpoint, too
        ended = f"{self.checkpoint.name}.ended"  # the last state
        known |= {ended, f"{ended}.history"}
        files = [file for file in self.out.parent.rglob("*") if file.is_file()]
        files = [file for file in files if file.parent.name != f"{ended}.clients"]
        if self.code:  # torch's compiler keeps what it wrote
            files = [file for file in files if self.code not in file.parents]
            files += self.code.glob("*.lock")
        return [str(file) for file in files if file.name not in known]

    def clear(self) -> None:
        """Nothing has been trained yet."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.rmtree(self.checkpoint.parent, ignore_errors=True)

    def forget_code(self) -> None:
        """No step has been compiled yet."""
        if self.code:
            shutil.rmtree(self.code, ignore_errors=True)


def killed(child: int) -> bool:
    """Wait for the end of a life; whether it was killed. A life may not fail."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise AssertionError(f"a life ended with the status {code}")
    return code == -signal.SIGKILL


def after(seconds: float) -> Callable[[int], None]:
    """Kill a life after some time, unless it has ended before."""
    ended = os.WEXITED | os.WNOWAIT | os.WNOHANG

    def wait(child: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not os.waitid(os.P_PID, child, ended):
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)

    return wait


def watching(place: Path, see: Callable[[str], None]) -> Callable[[], None]:
    """Call `see` before each operation on a file under `place`, with the operation's kind.

    The kind has the folder and whether it is a temporary one; the results of a run are alike.
    """

    def hook(event: str, arguments: tuple) -> None:
        named = str(arguments[0]) if arguments else ""
        if event in OPERATIONS and (event == "fcntl.flock" or named.startswith(str(place))):
            named = "" if event == "fcntl.flock" else named.removeprefix(str(place))
            how = arguments[1] if event == "open" else ""
            see(re.sub(r"\w+\.(csv|json|safetensors)|\d+", "*", f"{event} {named} {how}"))

    return lambda: sys.addaudithook(hook)


def at_operation(number: int, place: Path) -> Callable[[], None]:
    """Kill oneself at the n-th operation on a file under `place`."""
    left = count(number - 1, -1)
    return watching(place, lambda kind: next(left) or os.kill(os.getpid(), signal.SIGKILL))


def prepared(results: Path) -> None:
    """What the runs need: data, partition, saliency."""
    data.main(["digits", "--out", str(results / "data/digits")])
    run = json.dumps(Subject("fedsls", results, results).run)
    for stage in (partition, pretrain, saliency):
        stage.main([run, "--results", str(results)])


def list_operations(subject: Subject, place: Path) -> list[str]:
    """The kinds of the operations on files of a whole life, in their order."""
    subject.clear()
    with tempfile.TemporaryFile("w+", buffering=1) as seen:
        assert not killed(subject.live(watching(place, lambda kind: print(kind, file=seen))))
        seen.seek(0)
        return seen.read().splitlines()


def time_life(subject: Subject) -> float:
    """The seconds of a whole life, which finds the code that others have compiled."""
    subject.clear()
    began = time.monotonic()
    assert not killed(subject.live())
    return time.monotonic() - began


def one_of_each(kinds: list[str]) -> list[int]:
    """The number, from 1, of an operation of each kind: of several, one in the middle."""
    numbers: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds, 1):
        numbers.setdefault(kind, []).append(number)
    return [of[len(of) // 2] for of in numbers.values()]


def spread(kinds: list[str], times: int) -> list[int]:
    """The numbers, from 1, of some operations that are evenly spread over all."""
    return [len(kinds) * (2 * i + 1) // (2 * times) + 1 for i in range(times)]


def at_operations(
    subject: Subject, place: Path, expected: dict[str, bytes], found: list[str], choose: Choice
) -> int:
    """Kill a new run at the chosen operations on files, and let it go on; how many kills."""
    numbers = [*choose(found)]
    for number in numbers:
        subject.clear()
        subject.forget_code()
        assert killed(subject.live(at_operation(number, place))), f"no operation {number}"
        assert not killed(subject.live())
        compare(subject, expected, f"operation {number}, {found[number - 1]}")
    return len(numbers)


def at_random(subject: Subject, rng: random.Random, longest: float) -> int:
    """Kill one run after random times until it has ended all the same; how often it was killed."""
    subject.clear()
    times = 0
    while True:
        child = subject.live()
        after(rng.uniform(0, longest))(child)
        if not killed(child):
            return times
        times += 1


def compare(subject: Subject, expected: dict[str, bytes], what: str) -> None:
    """AssertionError unless all is as if the run had never been killed."""
    assert subject.bytes() == expected, f"{what}: other bytes"
    assert not subject.left(), f"{what}: {subject.left()} is left"


def campaign(asked: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Method, kind of moment and how many kills, each followed by a comparison."""
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        results, place = Path(folder) / "results", Path(folder) / "place"
        prepared(results)
        for method in asked.methods:
            subject = Subject(method, results, place, place / "code" if asked.compile else None)
            found = list_operations(subject, place)
            expected = subject.bytes()
            facts = json.loads((subject.out / "summary.json").read_text())
            assert facts.get("compiled", False) == asked.compile
            done = at_operations(subject, place, expected, found, choice(asked))
            yield method, "operation on a file", done
            done, longest = 0, 2 * time_life(subject)  # half of the lives end by themselves
            while done < asked.times:
                done += at_random(subject, rng, longest)
                compare(subject, expected, "a random moment")
            yield method, "random moment", done


def choice(asked: argparse.Namespace) -> Choice:
    """How to choose, among all operations, those at which a run is killed."""
    if asked.compile:
        return partial(spread, times=asked.times)
    return one_of_each if asked.kinds else lambda found: range(1, len(found) + 1)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--times", type=int, default=25, help="random kills of each method")
    parser.add_argument(
        "--kinds", action="store_true", help="one operation of each kind, not every one"
    )
    parser.add_argument("--compile", action="store_true", help="with compiled local steps")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'method':16} {'killed at':22} times")
    total = 0
    for method, moment, times in campaign(asked):
        print(f"{method:16} {moment:22} {times:5}", flush=True)
        total += times
    print(f"{total} kills, every time the same bytes and nothing left over")


if __name__ == "__main__":
    main()
