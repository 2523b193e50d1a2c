"""What a notebook's session and a run in it must not change of each other.

A run has PyTorch's own settings, whatever the session has set, and the session has its settings
back afterwards. An interrupted run saves a checkpoint. Files that were edited are imported again.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from typing import Any

import torch

from fedgrid.runtime import cli
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.code.harmless import HARMLESS
from fedgrid.runtime.names import UsageError
from fedgrid.store import identity

IMPORTED: dict[str, bytes] = {}  # the hashes of files whose modules this process has imported


@contextmanager
def isolate_settings() -> Iterator[None]:
    """Train with PyTorch's own settings, and restore at the end what the session had.

    These are threads, tiny numbers, generators, gradients, the default type and device, the signal
    SIGTERM, and the environment's data.
    """
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)
    dtype, given = torch.get_default_dtype(), os.environ.get(own_data.VARIABLE)
    on_cpu, gpus = torch.get_default_device().type == "cpu", range(torch.cuda.device_count())
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.random.fork_rng(devices=gpus),
            torch.inference_mode(False),
            torch.enable_grad(),
            nullcontext() if on_cpu else torch.device("cpu"),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
        signal.signal(signal.SIGTERM, handler)
        restore_variable(own_data.VARIABLE, given)
        remember_imports()


def restore_variable(name: str, value: str | None) -> None:
    """Give a variable of the environment its value back; None removes it."""
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn an error of the machine, such as a full disk, into a UsageError."""
    try:
        yield
    except OSError as problem:
        if sentence := cli.refused(problem):
            raise UsageError(sentence) from None
        raise


@contextmanager
def save_on_interrupt() -> Iterator[None]:
    """Let an interrupted training save a checkpoint after its round, as SIGTERM does.

    A second interrupt ends it at once. KeyboardInterrupt follows in both cases.
    """
    before, asked = signal.getsignal(signal.SIGINT), []

    def stop(number: int, frame: Any) -> None:
        save = signal.getsignal(signal.SIGTERM)
        if asked or not callable(save):
            raise KeyboardInterrupt
        asked.append(number)
        save(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    except SystemExit as problem:
        raise KeyboardInterrupt(str(problem)) from None
    finally:
        signal.signal(signal.SIGINT, before)


def unload_edited() -> None:
    """Have files of methods, models, datasets and partitions imported again if one was edited.

    UsageError if other code was edited, which this process cannot exchange.
    """
    edited = [m for m, known_hash in IMPORTED.items() if hash_module(m) != known_hash]
    for module in edited:
        if not module.startswith(identity.REGISTRIES):
            raise UsageError(
                f"fedgrid/{source.file(module)} was edited after it was imported: restart the "
                "kernel, or Python"
            )
    for module in [m for m in IMPORTED if edited and m.startswith(identity.REGISTRIES)]:
        sys.modules.pop(f"fedgrid.{module}", None)
        del IMPORTED[module]


def remember_imports() -> None:
    """Note the files of all modules that this process has imported and that may change results."""
    for name in [n.removeprefix("fedgrid.") for n in sys.modules if n.startswith("fedgrid.")]:
        if name not in HARMLESS and source.path(name).exists():
            IMPORTED.setdefault(name, hash_module(name))


def hash_module(module: str) -> bytes:
    """Return a hash of a module's file; of nothing if it is gone."""
    path = source.path(module)
    return sha256(path.read_bytes() if path.exists() else b"").digest()
