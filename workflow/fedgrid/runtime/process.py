"""The state of a process that can change numbers: as in a new process, and given back at the end.

`fresh_state` is around every run of a notebook, and around a command whose process has imported
PyTorch before it, such as by a file sitecustomize.py. Modes and hooks that change what PyTorch
computes cannot be put aside, and are refused. Variables of the environment are not changed, because
libraries have read them: those that lower a precision are refused (`machine.py`), and those that
round otherwise are noted in the record of a result (`records.py`).
"""

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from operator import attrgetter
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.backends import opt_einsum
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes

from fedgrid.runtime.names import UsageError

# The values of a new process, in an order in which they can be given back: the first one of float32
# changes those of the backends. A version of PyTorch may lack some of them.
ATTRIBUTES = {
    "backends.cudnn.allow_tf32": True,
    "backends.fp32_precision": "none",
    "backends.cudnn.fp32_precision": "none",
    "backends.mkldnn.fp32_precision": "none",
    "backends.cuda.matmul.fp32_precision": "none",
    "backends.cudnn.conv.fp32_precision": "tf32",
    "backends.cudnn.rnn.fp32_precision": "tf32",
    "backends.mkldnn.matmul.fp32_precision": "none",
    "backends.mkldnn.conv.fp32_precision": "none",
    "backends.mkldnn.rnn.fp32_precision": "none",
    "backends.cudnn.enabled": True,
    "backends.cudnn.benchmark": False,
    "backends.cudnn.deterministic": False,
    "backends.cudnn.depthwise_kernel": "auto",
    "backends.mkldnn.enabled": True,
    "backends.mkldnn.deterministic": False,
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": True,
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction": True,
    "backends.cuda.matmul.allow_fp16_accumulation": False,
    "backends.opt_einsum.enabled": opt_einsum.is_available(),
    "utils.deterministic.fill_uninitialized_memory": True,
}
# The function that reads a setting, the function that writes it, the value, and their argument.
FUNCTIONS: list[tuple[str, str, Any, *tuple[str, ...]]] = [
    ("get_float32_matmul_precision", "set_float32_matmul_precision", "highest"),
    ("get_default_dtype", "set_default_dtype", torch.float32),
    ("get_deterministic_debug_mode", "set_deterministic_debug_mode", 0),
    ("is_autocast_cache_enabled", "set_autocast_cache_enabled", True),
    ("is_autocast_enabled", "set_autocast_enabled", False, "cpu"),
    ("is_autocast_enabled", "set_autocast_enabled", False, "cuda"),
    ("get_autocast_dtype", "set_autocast_dtype", torch.bfloat16, "cpu"),
    ("get_autocast_dtype", "set_autocast_dtype", torch.float16, "cuda"),
    ("backends.mha.get_fastpath_enabled", "backends.mha.set_fastpath_enabled", True),
    ("backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp", True),
    ("backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp", True),
    ("backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp", True),
    ("backends.cuda.cudnn_sdp_enabled", "backends.cuda.enable_cudnn_sdp", True),
    (
        "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
        "backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        False,
    ),
]
# The same of settings that are read and written otherwise.
ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
OTHERS: list[tuple[Callable[[], Any], Callable[[Any], Any], Any]] = [
    (lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal, False),
    (np.getbufsize, np.setbufsize, 8192),
    (np.geterr, lambda kinds: np.seterr(**kinds), ERRORS),
    (lambda: np.get_printoptions()["legacy"], lambda v: np.set_printoptions(legacy=v), False),
]
ALONE = RLock()  # most of this state belongs to all threads
INSIDE = "fedgrid is called inside of {}, which could change numbers: call it outside"


@contextmanager
def fresh_state() -> Iterator[None]:
    """Run with the state of a new process, and give the present state back, also after an error.

    One thread at a time does so, and the others wait.

    UsageError for modes and hooks that could change numbers, and cannot be put aside.
    """
    refuse_surroundings()
    on_cpu = torch.empty(0).device.type == "cpu"  # by the default device
    with ALONE, ExitStack() as stack:
        for keep in (keep_generators, keep_settings, leave_autocast):
            stack.enter_context(keep())
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        stack.enter_context(torch.backends.nnpack.flags(enabled=True))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(nullcontext() if on_cpu else torch.device("cpu"))
        stack.enter_context(warnings.catch_warnings())
        if any(action == "error" for action, *_ in warnings.filters):
            warnings.simplefilter("default")
        yield


def refuse_surroundings() -> None:
    modes = [mode for mode in function_modes() if not isinstance(mode, DeviceContext)]
    if found := [type(mode).__name__ for mode in (*modes, *dispatch_modes())]:
        raise UsageError(INSIDE.format(found[0]))
    if modules._has_any_global_hook():
        raise UsageError("hooks on all modules of PyTorch could change numbers: remove them first")
    try:
        with disable_saved_tensors_hooks("saved_tensors_hooks"):
            pass
    except RuntimeError as problem:
        raise UsageError(INSIDE.format(problem)) from None


@contextmanager
def keep_settings() -> Iterator[None]:
    """Give all settings the values of a new process; the number of threads is only kept."""
    threads, settings = torch.get_num_threads(), [*list_settings()]
    before = [read_setting(read) for read, _, _ in settings]
    try:
        for read, write, plain in settings:
            change_setting(read, write, plain)
        yield
    finally:
        for (read, write, _), value in zip(settings, before, strict=True):
            if value is not None:
                change_setting(read, write, value)
        torch.set_num_threads(threads)


def list_settings() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any], Any]]:
    """Return how each setting that this version of PyTorch has is read and written, and its value.

    Of PyTorch's, the precision of float32 comes first.
    """
    yield from OTHERS
    for get, put, plain, *about in FUNCTIONS:
        yield (
            partial(attrgetter(get)(torch), *about),
            partial(attrgetter(put)(torch), *about),
            plain,
        )
    for path, plain in ATTRIBUTES.items():
        place, _, name = path.rpartition(".")
        with suppress(AttributeError):
            owner = attrgetter(place)(torch)
            read_setting(read := partial(getattr, owner, name))
            yield read, partial(setattr, owner, name), plain


def read_setting(read: Callable[[], Any]) -> Any:
    """Return a setting's value, or None if newer settings contradict it, which then count."""
    try:
        return read()
    except RuntimeError:
        return None


def change_setting(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> None:
    """Give a setting a value that it does not have; some warn when they are written."""
    if read_setting(read) != value:
        write(value)


@contextmanager
def leave_autocast() -> Iterator[None]:
    """Leave every autocast around: within one, what is cached outlives a change of the weights."""
    depth = torch.autocast_increment_nesting()
    for _ in range(depth):
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        for _ in range(depth - 1):
            torch.autocast_increment_nesting()


@contextmanager
def keep_generators() -> Iterator[None]:
    """Begin the random numbers of PyTorch, numpy and Python anew, and give their states back."""
    drawn, states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.default_generator.manual_seed(torch.Generator().initial_seed())
            np.random.seed(0)
            random.seed(0)
            yield
    finally:
        random.setstate(drawn)
        np.random.set_state(states)
