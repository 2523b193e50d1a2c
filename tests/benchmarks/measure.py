"""Clocks, memory, and contestants in processes of their own that are asked to play in turn.

Every contestant plays in a fresh process, which is set up and warmed up first and then idle but for
its turns. So none has another's memory, threads or imports, and a peer can have its own packages.
"""

import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
TICK = os.sysconf("SC_CLK_TCK")


class Clock:
    """Wall seconds, and processor seconds of this process and all that it has started."""

    def __init__(self, device: str = "cpu"):
        self.device, self.wall, self.cpu = device, 0.0, 0.0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self) -> None:
        """From here on it counts."""
        self._wait()
        self._began = time.perf_counter(), cpu_seconds()

    def stop(self) -> None:
        """Up to here it counted, work that was queued on a GPU included."""
        self._wait()
        wall, cpu = self._began
        self.wall, self.cpu = time.perf_counter() - wall, cpu_seconds() - cpu

    def _wait(self) -> None:
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()


def cpu_seconds() -> float:
    """Of this process, its ended children, and all that descend from it and live (Linux)."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + descendants()


def descendants() -> float:
    """Processor seconds of living descendants and of those that they have waited for."""
    stats = [stat for path in Path("/proc").glob("[0-9]*/stat") if (stat := fields(path))]
    family = {os.getpid()}
    while more := {pid for pid, parent, _ in stats if parent in family} - family:
        family |= more
    return sum(seconds for pid, _, seconds in stats if pid in family - {os.getpid()})


def fields(path: Path) -> tuple[int, int, float] | None:
    """A process's id, its parent's and its seconds; None if it is gone."""
    try:
        text = path.read_text()
    except OSError:
        return None
    values = text.rpartition(")")[2].split()
    return int(path.parent.name), int(values[1]), sum(map(int, values[11:15])) / TICK


def memory(field: str) -> int:
    """Bytes of /proc/self/status: VmRSS is in use, VmHWM is the most that was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


class ContestantError(Exception):
    """A contestant that cannot be measured, and why."""


class Contestant:
    """A contestant in a process of its own; use as a context."""

    def __init__(self, row: str, workload: str, rounds: int, device: str, python: Path, log: Path):
        self.row, self.log = row, log
        log.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(ROOT), str(ROOT / "workflow"), os.environ.get("PYTHONPATH", "")]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [python, "-m", "tests.benchmarks.worker", row, workload, str(rounds), device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=ROOT,
                env=os.environ | threads | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def ask(self, **question) -> dict:
        """What the process answers; ContestantError if it ends instead."""
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.process.stdout.readline()
        if not answer:
            lines = self.log.read_text().strip().splitlines() or ["it ended without a word"]
            raise ContestantError(f"{lines[-1]} (see {self.log})")
        return json.loads(answer)

    def play(self, rounds: int) -> dict:
        """Seconds and results of that many rounds from the initial weights."""
        return self.ask_for_state(do="play", rounds=rounds)

    def initial(self) -> dict:
        """The weights that all begin with."""
        return self.ask_for_state(do="initial")["state"]

    def ask_for_state(self, **question) -> dict:
        """The answer to a question, with the tensors that come with it."""
        from safetensors.torch import load_file

        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/state.safetensors"
            answer = self.ask(**question, out=path)
            return answer | {"state": load_file(path)}


def interleaved(contestants: list[Contestant], repeats: int, rounds: int) -> dict[str, list[dict]]:
    """Every contestant's repeats, by its row; each repeat begins with another contestant."""
    found = {contestant.row: [] for contestant in contestants}
    for repeat in range(repeats):
        first = repeat % len(contestants)
        for contestant in contestants[first:] + contestants[:first]:
            answer = contestant.play(rounds)
            print(f"{contestant.row}: {answer['wall']:.4g} s for {rounds} rounds", flush=True)
            found[contestant.row].append(answer)
    return found
