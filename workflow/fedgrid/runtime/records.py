"""Records: inputs, code, command and machine of a result, in `.<file>.record` beside it.

Every command returns what it read and wrote (`Work`), and its record is written when it has
succeeded. `fedgrid verify` compares files with records.
"""

import hashlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.names import PACKAGE

BEGAN = time.monotonic()
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "scikit-image", "safetensors")
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}  # Linux's flags, widest first


@dataclass(frozen=True)
class Work:
    """The files that a command wrote (the record lies beside the last one) and read."""

    outputs: Sequence[Path]
    inputs: Iterable[Path] = ()
    run: dict[str, Any] | None = None  # the resolved run, for a command about one run


@dataclass(frozen=True)
class Command:
    """A command that runs in a process with others: its words, modules and beginning."""

    words: list[str]
    modules: list[str]
    began: float  # by time.monotonic


def path(output: Path) -> Path:
    """Return the path of a file's record."""
    return output.with_name(f".{output.name}.record")


def write(work: Work, command: Command | None = None) -> None:
    """Write the record of a command, by default of this process, beside its last file."""
    last, made = work.outputs[-1], {*work.outputs}
    command = command or of_process()
    record = {
        "command": command.words,
        "run": work.run,
        "outputs": {relative(file, last.parent): checksum(file) for file in sorted(made)},
        "inputs": {str(file): checksum(file) for file in sorted({*work.inputs} - made)},
        "code": {"modules": command.modules, "fingerprint": source.of(command.modules)},
        "versions": versions(),
        "host": socket.gethostname(),
        "seconds": round(time.monotonic() - command.began, 1),
        "peak_memory_mb": peak_memory_mb(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    temporary = path(last).with_suffix(f".{os.getpid()}.tmp")  # of this process only
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.replace(path(last))


def peak_memory_mb() -> int:
    """The peak memory of this process in MiB; 0 if the system does not count it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, else kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)


def processor() -> str:
    """Return the processor's name and, on Linux, its widest vectors: "AMD EPYC (AVX2)".

    Two processors of the same name can have different vectors, and then very different speeds.
    """
    with suppress(OSError, LookupError):
        return named(Path("/proc/cpuinfo").read_text())
    return platform.processor() or platform.machine()


def named(about: str) -> str:
    """Return the name and the widest vectors in the text of `/proc/cpuinfo`, or raise KeyError."""
    lines = (line.partition(":") for line in about.splitlines())
    facts = {key.strip(): value.strip() for key, _, value in lines}
    flags = facts.get("flags", "").split()
    vectors = [f" ({name})" for flag, name in VECTORS.items() if flag in flags]
    return facts["model name"] + "".join(vectors[:1])


def relative(file: Path, folder: Path) -> str:
    """Return the path of a file relative to a folder."""
    return os.path.relpath(file, folder)


def checksum(file: Path) -> str:
    """Return the sha256 of a file, or of the `meta.json` of a folder."""
    with (file / "meta.json" if file.is_dir() else file).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def of_process() -> Command:
    """Return the command that this process is, with all modules that it has imported."""
    spec, prefix = sys.modules["__main__"].__spec__, f"{PACKAGE.name}."
    loaded = {name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)}
    loaded |= {spec.name.removeprefix(prefix)} if spec else set()
    modules = sorted(name for name in loaded if source.exists(name))
    return Command([spec.name if spec else sys.argv[0], *sys.argv[1:]], modules, BEGAN)


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that can change numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
