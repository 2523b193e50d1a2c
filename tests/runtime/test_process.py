"""The state of a process around a run: as in a new process inside, and the same as before after."""

import random
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from threading import Event

import numpy as np
import pytest
import torch
from torch.autograd.graph import save_on_cpu
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from fedgrid.engine import device
from fedgrid.runtime import machine, process
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.records import LIBRARIES

BACKENDS = torch.backends


@contextmanager
def given(read, write, value):
    before = read()
    write(value)
    yield
    write(before)


def pair(path: str, value, *about):
    """A setting that is read by one function and written by another."""
    (row,) = [one for one in process.FUNCTIONS if one[1] == path and one[3:] == about]
    read, write = (process.attrgetter(name)(torch) for name in row[:2])
    return given(lambda: read(*about), lambda new: write(*about, new), value)


def attribute(path: str, value):
    place, _, name = path.rpartition(".")
    owner = process.attrgetter(place)(torch)
    return given(lambda: getattr(owner, name), lambda new: setattr(owner, name, new), value)


@contextmanager
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def flushed() -> bool:
    return sys.float_info.min / 2 == 0


def describe() -> dict:
    """All that `fresh_state` promises to give back."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    found = [read for read, _, _ in process.list_settings()]
    return {
        "settings": [process.read_setting(read) for read in found],
        "autograd": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), depth),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "device": (torch.empty(0).device, torch.get_num_threads(), flushed()),
        "numpy": (np.geterr(), np.getbufsize(), np.get_printoptions()["legacy"]),
        "filters": [*warnings.filters],
        "drawn": (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())),
    }


CHANGES = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "half": lambda: torch.autocast("cpu", torch.float16, cache_enabled=False),
    "its type": lambda: pair("set_autocast_dtype", torch.float16, "cpu"),
    "of a GPU": lambda: pair("set_autocast_enabled", True, "cuda"),
    "type": lambda: pair("set_default_dtype", torch.float64),
    "device": lambda: torch.device("meta"),
    "inference": torch.inference_mode,
    "no gradient": torch.no_grad,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "denormals": lambda: given(flushed, torch.set_flush_denormal, True),
    "deterministic": lambda: pair("set_deterministic_debug_mode", 2),
    "precision": lambda: pair("set_float32_matmul_precision", "medium"),
    "convolutions": lambda: attribute("backends.cudnn.allow_tf32", False),
    "benchmark": lambda: attribute("backends.cudnn.benchmark", True),
    "no oneDNN": lambda: attribute("backends.mkldnn.enabled", False),
    "attention": lambda: pair("backends.cuda.enable_flash_sdp", False),
    "threads": lambda: given(torch.get_num_threads, torch.set_num_threads, 2),
    "errors": lambda: np.errstate(all="raise"),
    "buffer": lambda: given(np.getbufsize, np.setbufsize, 64),
    "digits": lambda: np.printoptions(legacy="1.13"),
    "warnings": strict,
}
if hasattr(BACKENDS, "fp32_precision"):
    CHANGES |= {
        path: lambda path=path: attribute(path, "ieee")
        for path in process.ATTRIBUTES
        if path.endswith("fp32_precision")
    }


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("fails", [False, True])
def test_the_state_inside_is_that_of_a_new_process_and_is_given_back(name, fails):
    with process.fresh_state():
        fresh = describe()
    with CHANGES[name]():
        before = describe()
        with pytest.raises(ZeroDivisionError) if fails else nullcontext(), process.fresh_state():
            inside = describe()
            with warnings.catch_warnings(record=True):
                warnings.warn("this is no error", stacklevel=1)
            device.prepare("cpu", 1, "fp32")  # as a stage does
            torch.rand(1), np.random.rand(), random.random()
            assert not fails or 1 / 0
        assert describe() == before
    named = {"drawn", "device"} if name == "threads" else {"filters"}
    assert {k: v for k, v in inside.items() if k not in named} == {
        k: v for k, v in fresh.items() if k not in named
    }


def test_threads_give_back_the_state_that_was_before_all_of_them():
    inside = Event()

    def run(seconds: float):
        with process.fresh_state():
            inside.set()
            time.sleep(seconds)

    with pair("set_default_dtype", torch.float64), ThreadPoolExecutor(2) as pool:
        pool.submit(run, 0.1)
        inside.wait()
        pool.submit(run, 0.3)
        pool.shutdown()
        assert torch.get_default_dtype() == torch.float64


class Changed(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


@contextmanager
def hooked():
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, x, made: None)
    yield
    hook.remove()


@pytest.mark.parametrize("around", [Changed, FlopCounterMode, save_on_cpu, hooked])
def test_what_cannot_be_put_aside_is_refused(around):
    with around(), pytest.raises(UsageError), process.fresh_state():
        pass
    with process.fresh_state():
        pass


def test_a_variable_that_lowers_the_precision_is_refused_in_every_stage(monkeypatch):
    for name in machine.LOWERING:
        monkeypatch.setenv(name, "1")
        with pytest.raises(UsageError, match=name):
            device.prepare("cpu", 1, "fp32")
        monkeypatch.setenv(name, machine.LOWERING[name][1])
        device.prepare("cpu", 1, "fp32")
    assert "ATEN_CPU_CAPABILITY".startswith(LIBRARIES)
    assert not "HOME".startswith(LIBRARIES)
