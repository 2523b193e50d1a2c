"""What a GPU does with compiled local steps: one cell of FedSLS's paper, by itself and shared.

    python -m tests.benchmarks.gpu compile --rounds 3         # fills the compiler's folder
    python -m tests.benchmarks.gpu cell --precision tf32      # time of a round, estimate of 2,000
    python -m tests.benchmarks.gpu cell --clients 50          # five times the clients in one stack
    python -m tests.benchmarks.gpu cell --operations 30       # shorter kernels, torch's default
    python -m tests.benchmarks.gpu shared --runs 1 2 4 8      # several runs on one card
    python -m tests.benchmarks.gpu shared --mps               # the same with NVIDIA's MPS
    python -m tests.benchmarks.gpu profile                    # where a round's time goes
    python -m tests.benchmarks.gpu resumed                    # whether a resumed run has the bytes
    python -m tests.benchmarks.gpu waits                      # how often a round waits for the card
    python -m tests.benchmarks.gpu evaluation                 # parts of 1,000 images against larger

A line of JSON for each measurement, as soon as it is made. `gpu.sh` calls all of it. The data are
random images of CIFAR's size, and the cell is that of workload C with crop and flip, evaluated
every ten rounds.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from tests.benchmarks import measure, task
from torch.utils._pytree import tree_map

from fedgrid.engine.backends import _compiled
from fedgrid.engine.evaluation import EVALUATION_BATCH
from fedgrid.engine.hooks import rules
from fedgrid.engine.round import Engine
from fedgrid.method import Method
from fedgrid.runtime import gpus

ROUNDS = 2_000  # of the paper
RUNS = 135  # of the paper, with CIFAR-10
CLIENTS = 10  # of a round
FIRST = ("fedavg", "fedsls", "fedlmd", "fedntd", "scaffold", "moon")  # of the papers' runs
WARM = 10  # rounds before the clock starts: compiling and the first evaluation
COMPILED = (("A", ""), ("A", "tf32"), ("C", ""), ("C", "tf32"), ("D", ""), ("E", ""))  # by gpu.sh


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    asked = parser().parse_args(arguments)
    if asked.operations:
        _compiled.OPTIONS["realize_opcount_threshold"] = asked.operations
    if asked.device == "cuda":
        gpus.claim(0)  # for all processes of this one: each for itself would wait for the others
    WAYS[asked.way](asked)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    made.add_argument("way", choices=WAYS)
    made.add_argument("--precision", default="fp32", choices=("fp32", "tf32", "bf16"))
    made.add_argument("--compile", default="on", choices=("on", "off"))
    made.add_argument("--operations", type=int, help="after which compiled code writes a result")
    made.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    made.add_argument("--rounds", type=int, default=40)
    made.add_argument("--clients", type=int, default=CLIENTS, help="in a round, of 100")
    made.add_argument("--runs", type=int, nargs="+", default=[1, 2, 4, 8])
    made.add_argument("--mps", action="store_true", help="runs share the card by NVIDIA's MPS")
    made.add_argument("--out", type=Path, default=Path("results/benchmarks-gpu"), help="for logs")
    made.add_argument("--small", action="store_true", help="workload E, to try this script")
    return made


def engine_of(asked) -> Engine:
    """The cell's engine."""
    made = task.make("E" if asked.small else "C", 1, asked.device, asked.precision)
    augment = [] if asked.small else ["crop", "flip"]
    protocol = made.protocol | {"augment": augment, "rounds": ROUNDS}
    protocol |= {"participation": asked.clients / protocol["clients"]}
    chosen = {"backend": "stacked", "compile": asked.compile}
    return Engine(made.build, Method(), protocol, made.federation, **chosen)


def played(engine: Engine, state, rounds: int) -> Iterator:
    """The states after each of these rounds, evaluated every ten."""
    for _ in range(rounds):
        state = engine.round(state)
        if state.round % 10 == 0:
            engine.evaluation.evaluate(state.server)
        yield state


def wait() -> None:
    """Until the GPU has done all that is queued."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def cell(asked) -> None:
    """Print the seconds of a round, and what the paper's rounds would take."""
    began = time.perf_counter()
    engine = engine_of(asked)
    *_, state = played(engine, engine.start(0), WARM)
    wait()
    warm = time.perf_counter() - began
    began = time.perf_counter()
    for _ in played(engine, state, asked.rounds):
        pass
    wait()
    seconds = (time.perf_counter() - began) / asked.rounds
    paper = ROUNDS * seconds + warm
    hours = RUNS * paper / 3600 * CLIENTS / asked.clients
    found = {"first_seconds": warm, "round_seconds": seconds, "paper_seconds": paper}
    say(asked, **found, hours_of_135_runs=hours)


def say(asked, **found) -> None:
    """Print a line with what was measured."""
    about = {"way": asked.way, "precision": asked.precision, "compile": asked.compile}
    about |= {"clients": asked.clients}
    on_gpu = torch.cuda.is_available() and asked.device == "cuda"
    about["card"] = torch.cuda.get_device_name() if on_gpu else "cpu"
    about["peak_mb"] = torch.cuda.max_memory_allocated() // 2**20 if on_gpu else 0
    print(json.dumps(about | found), flush=True)


def again(asked, way: str, rounds: int) -> list[str]:
    """The command of another process in the same setting."""
    command = [sys.executable, "-m", "tests.benchmarks.gpu", way, "--device", asked.device]
    command += ["--precision", asked.precision, "--compile", asked.compile]
    command += ["--rounds", str(rounds), "--clients", str(asked.clients)]
    return command + ["--small"] * asked.small


def compile_all(asked) -> None:
    """Compile the steps of the cell and of the benchmark's rows at once, each in a process.

    Whatever needs them later finds them in the compiler's folder.
    """
    rows = [("E", "")] if asked.small else COMPILED
    jobs = [partial(subprocess.run, again(asked, "cell", 1), cwd=measure.ROOT, check=True)]
    jobs += [partial(compile_row, asked, *row) for row in rows]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()


def compile_row(asked, workload: str, precision: str) -> None:
    """Play the first rounds of a row of the benchmark, and print how long that took."""
    began, row = time.perf_counter(), f"fedgrid compiled {precision}".strip()
    log = asked.out / f"{workload}-{row.replace(' ', '-')}.txt"
    where = asked.device, Path(sys.executable), log
    with measure.Contestant(row, workload, asked.rounds, *where) as contestant:
        contestant.play(asked.rounds)
    say(asked, workload=workload, row=row, seconds=time.perf_counter() - began)


def shared(asked) -> None:
    """Print the throughput of several runs at once, each in a process of its own.

    All are made ready first. Then so many of them as are asked for play at the same time.
    """
    with ExitStack() as stack:
        if asked.mps:
            stack.enter_context(mps())
        command = again(asked, "served", asked.rounds)
        pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE) | {"text": True}
        start = partial(subprocess.Popen, command, cwd=measure.ROOT, **pipes)
        made = [start() for _ in range(max(asked.runs))]
        runs = [stack.enter_context(run) for run in made]
        answers(runs)
        for number in asked.runs:
            began = time.perf_counter()
            for run in runs[:number]:
                print(file=run.stdin, flush=True)
            answers(runs[:number])
            rate = number * asked.rounds / (time.perf_counter() - began)
            hours = RUNS * ROUNDS / rate / 3600
            say(asked, mps=asked.mps, runs=number, rounds_per_second=rate, hours_of_135_runs=hours)


def answers(runs: list[subprocess.Popen]) -> None:
    """Wait until each of these runs has said that it is done."""
    for run in runs:
        if not run.stdout.readline():
            raise SystemExit("a run ended before it was done: its error is above this line")


def served(asked) -> None:
    """Play so many rounds for each line that is read, and print a line when they are done."""
    engine = engine_of(asked)
    *_, state = played(engine, engine.start(0), WARM)
    wait()
    print("ready", flush=True)
    for _ in sys.stdin:
        *_, state = played(engine, state, asked.rounds)
        wait()
        print("done", flush=True)


@contextmanager
def mps() -> Iterator[None]:
    """While it is on, processes that start share the card by NVIDIA's MPS."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        raise SystemExit("this machine has no nvidia-cuda-mps-control: leave out --mps")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that MPS ends with this process
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run([control, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([control], input="quit\n", text=True)


def profile(asked) -> None:
    """Print the kernels that take most of a round."""
    from torch.profiler import ProfilerActivity, profile

    engine = engine_of(asked)
    *_, state = played(engine, engine.start(0), WARM)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in played(engine, state, 3):
            pass
        wait()
    order = "self_cuda_time_total" if asked.device == "cuda" else "self_cpu_time_total"
    print(seen.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=90))


def resumed(asked) -> None:
    """Print whether a run that is resumed after two rounds has the bytes of a whole one."""
    whole, other = engine_of(asked), engine_of(asked)
    *_, middle = played(whole, whole.start(0), 2)
    kept = replace(middle, server=tree_map(torch.clone, middle.server))
    *_, expected = played(whole, middle, 2)
    other.start(0)
    *_, last = played(other, kept, 2)
    same = all(torch.equal(last.server[n], w) for n, w in expected.server.items())
    say(asked, same_bytes=same)
    if not same:
        sys.exit(1)


def waits(asked) -> None:
    """Print how often a later round of each method waits for the card, by torch's own count.

    The status is 1 if one waits that need not. The methods are those of the tests, in their
    setting, and those of the papers' runs come first, because the script may be stopped.
    """
    sys.path.append(str(measure.ROOT / "tests"))  # for conftest
    from tests.engine.test_gpu import on_gpu
    from tests.engine.test_waits import WAITS, started

    from conftest import QUIET, uneven

    wrong, on_cpu = False, asked.device == "cpu"
    names = sorted(QUIET, key=lambda name: (name not in FIRST, name in WAITS, name))
    federation = uneven() if on_cpu else on_gpu(uneven())
    for name in names[:1] if asked.small else names:
        with checks_left_for_later() if on_cpu else nullcontext():
            found = count_waits(started(name, compiled=on_cpu, federation=federation), on_cpu)
        say(asked, method=name, waits=found, must=name in WAITS)
        wrong |= bool(found) and name not in WAITS
    sys.exit(int(wrong))


def checks_left_for_later():
    """While it is on, a CPU leaves checks of numbers for later, as a GPU does."""
    return patch.object(rules, "is_waited_for", lambda tensor: True)


def count_waits(run, on_cpu: bool) -> int:
    """How often one more round waits for the card; on a CPU, how often it would."""
    from tests.engine.test_waits import waits as counted

    if on_cpu:
        with counted() as found:
            run.play(1)
        return len(found)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run.play(1)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in seen)


def evaluation(asked) -> None:
    """Print the seconds of an evaluation in parts of 1,000 samples, and in those for the card."""
    engine = engine_of(asked)
    state = engine.start(0)
    for at_once in (EVALUATION_BATCH, engine.evaluation.at_once):
        engine.evaluation.at_once = at_once
        engine.evaluation.evaluate(state.server)
        began = time.perf_counter()
        for _ in range(asked.rounds):
            found = engine.evaluation.evaluate(state.server)
        seconds = (time.perf_counter() - began) / asked.rounds
        say(asked, at_once=at_once, evaluation_seconds=seconds, loss=found["loss"])


WAYS = {"compile": compile_all, "cell": cell, "shared": shared, "served": served}
WAYS |= {"profile": profile, "resumed": resumed, "waits": waits, "evaluation": evaluation}

if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "results/compiled")
    main()
