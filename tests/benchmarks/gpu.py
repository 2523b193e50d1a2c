"""What a GPU does with compiled local steps: one cell of FedSLS's paper, by itself and shared.

    python -m tests.benchmarks.gpu cell --precision tf32      # time of a round, estimate of 2,000
    python -m tests.benchmarks.gpu shared --runs 1 2 4 8      # several runs on one card
    python -m tests.benchmarks.gpu profile                    # where a round's time goes
    python -m tests.benchmarks.gpu resumed                    # whether a resumed run has the bytes
    python -m tests.benchmarks.gpu waits                      # how often a round waits for the card
    python -m tests.benchmarks.gpu evaluation                 # parts of 1,000 images against larger

A line of JSON for each measurement. `gpu.sh` calls all of it. The data are random images of CIFAR's
size, and the cell is that of workload C with crop and flip, evaluated every ten rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator

import torch
from tests.benchmarks import task

from fedgrid.engine.evaluation import EVALUATION_BATCH
from fedgrid.engine.round import Engine
from fedgrid.method import Method

ROUNDS = 2_000  # of the paper
FIRST = ("fedavg", "fedsls", "fedlmd", "fedntd", "scaffold", "moon")  # of the papers' runs
WARM = 3  # rounds before the clock starts: compiling and the first evaluation


def main() -> None:
    """Entry point."""
    asked = parser().parse_args()
    WAYS[asked.way](asked)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    made.add_argument("way", choices=WAYS)
    made.add_argument("--precision", default="fp32", choices=("fp32", "tf32", "bf16"))
    made.add_argument("--compile", default="on", choices=("on", "off"))
    made.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    made.add_argument("--rounds", type=int, default=40)
    made.add_argument("--runs", type=int, nargs="+", default=[1, 2, 4, 8])
    made.add_argument("--small", action="store_true", help="workload E, to try this script")
    return made


def engine_of(asked) -> Engine:
    """The cell's engine."""
    made = task.make("E" if asked.small else "C", 1, asked.device, asked.precision)
    augment = [] if asked.small else ["crop", "flip"]
    protocol = made.protocol | {"augment": augment, "rounds": ROUNDS}
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
    say(asked, first_seconds=warm, round_seconds=seconds, paper_seconds=ROUNDS * seconds + warm)


def say(asked, **found) -> None:
    """Print a line with what was measured."""
    about = {"way": asked.way, "precision": asked.precision, "compile": asked.compile}
    on_gpu = torch.cuda.is_available() and asked.device == "cuda"
    about["card"] = torch.cuda.get_device_name() if on_gpu else "cpu"
    about["peak_mb"] = torch.cuda.max_memory_allocated() // 2**20 if on_gpu else 0
    print(json.dumps(about | found), flush=True)


def shared(asked) -> None:
    """Print the throughput of several runs at once, each in a process of its own."""
    for number in asked.runs:
        command = [sys.executable, "-m", "tests.benchmarks.gpu", "cell"]
        command += ["--precision", asked.precision, "--compile", asked.compile]
        command += ["--device", asked.device, "--rounds", str(asked.rounds)]
        command += ["--small"] if asked.small else []
        runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(number)]
        lines = [run.communicate()[0].splitlines()[-1] for run in runs]
        each = [json.loads(line)["round_seconds"] for line in lines]
        say(asked, runs=number, rounds_per_second=sum(1 / seconds for seconds in each))


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
    whole, again = engine_of(asked), engine_of(asked)
    states = [*played(whole, whole.start(0), 4)]
    begun = engine_of(asked)
    *_, middle = played(begun, begun.start(0), 2)
    again.start(0)
    *_, last = played(again, middle, 2)
    same = all(torch.equal(last.server[n], w) for n, w in states[-1].server.items())
    say(asked, same_bytes=same)
    if not same:
        sys.exit(1)


def waits(asked) -> None:
    """Print how often a later round of each method waits for the card, by torch's own count.

    The status is 1 if one waits that need not. The methods are those of the tests, in their
    setting, and those of the papers' runs come first, because the script may be stopped.
    """
    from tests.engine.test_gpu import on_gpu
    from tests.engine.test_waits import WAITS, started

    from conftest import QUIET, uneven

    wrong = False
    federation = on_gpu(uneven()) if asked.device == "cuda" else uneven()
    for name in sorted(QUIET, key=lambda name: (name not in FIRST, name in WAITS, name)):
        found = count_waits(started(name, compiled=asked.device == "cpu", federation=federation))
        say(asked, method=name, waits=found, must=name in WAITS)
        wrong |= bool(found) and name not in WAITS
    sys.exit(int(wrong))


def count_waits(run) -> int:
    """How often one more round waits for the card; without one, how often it would."""
    from tests.engine.test_waits import waits as counted

    if not torch.cuda.is_available():
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


WAYS = {"cell": cell, "shared": shared, "profile": profile, "resumed": resumed, "waits": waits}
WAYS |= {"evaluation": evaluation}

if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "results/compiled")
    main()
