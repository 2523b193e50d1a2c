"""Isolates a run from a notebook's global settings, and the notebook from those of the run.

A run uses the settings of a new process, whatever the notebook has set, and the notebook's settings
are restored after it. An interrupted run saves a checkpoint. Edited files are imported again.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from fedgrid.runtime import cli
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.process import fresh_state
from fedgrid.store import identity

IMPORTED: dict[str, bytes] = {}  # the hashes of files whose modules this process has imported


@contextmanager
def isolate_settings() -> Iterator[None]:
    """Run as in a new process, and restore the notebook's settings at the end.

    They are those of `fresh_state`, the handler of SIGTERM, and the environment's variables for own
    data.
    """
    handler = signal.getsignal(signal.SIGTERM)
    given = {name: os.environ.get(name) for name in (own_data.VARIABLE, own_data.OF_STUDIES)}
    try:
        with fresh_state():
            yield
    finally:
        if signal.getsignal(signal.SIGTERM) is not handler:  # only the main thread may set one
            signal.signal(signal.SIGTERM, handler)
        for name, value in given.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        remember_imports()


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn an error of the operating system, such as a full disk, into a UsageError."""
    try:
        yield
    except OSError as problem:
        if sentence := cli.refused(problem):
            raise UsageError(sentence) from None
        raise


@contextmanager
def save_on_interrupt() -> Iterator[None]:
    """Let an interrupted training finish its round and save a checkpoint, as SIGTERM does.

    A second interrupt ends it at once. Both raise KeyboardInterrupt.
    """
    before = signal.getsignal(signal.SIGINT)
    asked: list[int] = []

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
    """Import methods, models, datasets and partitions again if one of their files was edited.

    UsageError if other code of fedgrid was edited, because Python cannot reload it safely.
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
    """Remember the hash of every imported file that can change results, to notice edits later."""
    for name in [n.removeprefix("fedgrid.") for n in sys.modules if n.startswith("fedgrid.")]:
        if name not in IMPORTED and source.counts(name) and source.path(name).exists():
            IMPORTED[name] = hash_module(name)


def hash_module(module: str) -> bytes:
    """Return a hash of a module's file; a missing file counts as empty."""
    path = source.path(module)
    return sha256(path.read_bytes() if path.exists() else b"").digest()
