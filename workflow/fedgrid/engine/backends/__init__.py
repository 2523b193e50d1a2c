"""Two ways to train a cohort, `loop` and `stacked`, with the same result up to rounding.

The local step of `stacked` can be compiled. Whether it is depends on the settings of a run and not
on what has happened to it, so that a resumed run has the bytes of one that was not interrupted.
"""

import importlib.util
import logging
import os
import shutil
from math import ceil

import torch
from torch import nn

from fedgrid.engine import recurrent
from fedgrid.runtime.names import UsageError

log = logging.getLogger(__name__)

# Local steps after which compiling one program has paid. It takes time in proportion to the
# operations of a step, and so does what it saves in each step on a GPU: about 50 ms against 10 us
# per operation.
ENOUGH = 5_000
OLDEST = (7, 0)  # compute capability that Triton needs

SMALL = 50_000  # parameters; below, calls take more time than arithmetic in a linear model


def best(model: nn.Module, device: torch.device) -> str:
    """Return "stacked" for a GPU, and for a small linear model on a CPU; else "loop".

    On a CPU, stacking halves the time of small linear layers, but convolutions take two to five
    times as long (tests/benchmarks/README.md). A recurrent layer takes a whole sequence in one call
    of the loop, and in the stack it takes some calls for every step.
    """
    if recurrent.recurrent(model):
        return "loop"
    layers = [
        module for module in model.modules() if next(module.parameters(False), None) is not None
    ]
    linear = all(isinstance(layer, nn.Linear) for layer in layers)
    small = sum(parameter.numel() for parameter in model.parameters()) < SMALL
    return "stacked" if device.type == "cuda" or (linear and small) else "loop"


def fitting(total: int, busy: int) -> int:
    """Return how many of a stack's clients take a step in which so many are not idle.

    There are few such numbers, because the step is recorded for each: the halves of the stack.
    """
    n = total
    while busy <= ceil(n / 2) < n:
        n = ceil(n / 2)
    return n


def count_stacks(total: int) -> int:
    """Return how many sizes a stack of so many clients can have as they finish."""
    return len({fitting(total, busy) for busy in range(1, total + 1)})


def compiles(choice: str, backend: str, device: torch.device, steps: int, stacks: int = 1) -> bool:
    """Return whether the local step of a run of so many steps is compiled.

    It is compiled once for each size of its stacks. UsageError if it must be (`on`) and cannot be.
    """
    if choice == "off" or (choice == "auto" and not pays(backend, device, steps, stacks)):
        return False
    reason = obstacle(backend, device)
    if reason and choice == "on":
        raise UsageError(f"compile is on, but {reason}, or set `compile: auto`")
    if reason:
        log.warning("the local step is not compiled, because %s", reason)
    return not reason


def pays(backend: str, device: torch.device, steps: int, stacks: int) -> bool:
    """Whether compiling is expected to save more time than it takes, and say so in the log."""
    if backend != "stacked" or device.type != "cuda":
        return False
    enough = ENOUGH * stacks
    log.info(
        "the local step %s compiled: the run has at most %d local steps and stacks of %d sizes, "
        "and compiling pays from %d steps on",
        *("is" if steps >= enough else "is not", steps, stacks, enough),
    )
    return steps >= enough


def obstacle(backend: str, device: torch.device) -> str:
    """Return why a local step cannot be compiled, and what to do; "" if it can be."""
    if backend != "stacked":
        return "the backend loop compiles nothing: set `backend: stacked`"
    if device.type == "cpu":
        compiler = os.environ.get("CXX", "g++")
        found = shutil.which(compiler)
        return "" if found else f"there is no C++ compiler `{compiler}`: install one"
    if not importlib.util.find_spec("triton"):
        return "the package triton is missing: install it"
    if torch.cuda.get_device_capability(device) < OLDEST:
        return "the GPU is too old for Triton (before Volta): set `device: cpu`"
    return ""
