"""A contestant's process: sets it up, then does what it is told on stdin, a JSON object per line.

    python -m tests.benchmarks.worker "fedgrid bf16" A 2 cpu

`measure.Contestant` starts it and talks to it. Whatever contestants print goes to stderr.
"""

import json
import os
import sys
from importlib import import_module

from tests.benchmarks import measure, workloads


def main() -> None:
    """Entry point."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    row, workload, rounds, device = sys.argv[1:]
    name, precision, compiled = workloads.read(row)
    file, _, function = ENCODERS.get((workload, name), f"contestants.{name}:prepare").partition(":")
    prepare = getattr(import_module(f"tests.benchmarks.{file}"), function)
    from tests.benchmarks import task

    before = measure.memory("VmRSS")
    made = task.make(workload, int(rounds), device, precision)
    play = prepare(made, compiled=True) if compiled else prepare(made)
    for line in sys.stdin:
        question = json.loads(line)
        answer = ANSWERS[question.pop("do")](made, play, before, **question)
        channel.write(json.dumps(answer) + "\n")
        channel.flush()
    os._exit(0)


ENCODERS = {("F", name): f"encoder:{name}" for name in ("fedgrid", "textbook", "batched")}


def timed(task, play, before, rounds: int, out: str) -> dict:
    """One repeat; the weights are left in the file `out`."""
    from safetensors.torch import save_file

    clock = measure.Clock(task.device.type)
    outcome = play(rounds, clock)
    save_file({n: t.detach().cpu().contiguous() for n, t in outcome.state.items()}, out)
    return {"wall": clock.wall, "cpu": clock.cpu, "accuracies": outcome.accuracies}


def peak(task, play, before) -> dict:
    """Peak memory beside its units, in bytes: the dataset (uint8) and one model."""
    import torch

    data, cuda = task.federation, task.device.type == "cuda"
    tensors = (data.images, data.labels, data.test_images, data.test_labels)
    return {
        "peak": torch.cuda.max_memory_allocated() if cuda else measure.memory("VmHWM"),
        "before": 0 if cuda else before,
        "dataset": sum(t.nbytes for t in tensors),
        "model": sum(t.nbytes for t in task.initial.values()),
    }


def profiled(task, play, before, rounds: int) -> dict:
    """Shares of an instrumented repeat."""
    from tests.benchmarks import profile

    return profile.shares(play, rounds, measure.Clock(task.device.type))


def initial(task, play, before, out: str) -> dict:
    """The weights that all begin with, left in the file `out`."""
    from safetensors.torch import save_file

    save_file({n: t.cpu().contiguous() for n, t in task.initial.items()}, out)
    return {}


ANSWERS = {"play": timed, "initial": initial, "peak": peak, "profile": profiled}

if __name__ == "__main__":
    main()
