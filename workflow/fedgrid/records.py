"""What a result was made from, by what and where: a record beside it, `.<file>.record`.

Every entry point leaves one for what it wrote; `fedgrid.verify` holds files and records together.
A command's inputs and outputs are noted as they are read and written, by the functions that all
entry points share, and written down when the command has succeeded.
"""

import hashlib
import json
import os
import platform
import resource
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedgrid import source
from fedgrid.names import PACKAGE

CHANGES_RESULTS = False
BEGAN = time.monotonic()
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "scikit-image", "safetensors")


@dataclass
class Notes:
    """What this process has read and written."""

    inputs: list[Path] = field(default_factory=list)
    outputs: list[Path] = field(default_factory=list)
    run: dict[str, Any] | None = None  # the resolved run, if it is about one


NOTES = Notes()


def path(output: Path) -> Path:
    """Where the record of a file is."""
    return output.with_name(f".{output.name}.record")


def write() -> None:
    """The record of what this command has done, beside the last file that it wrote."""
    if not NOTES.outputs:
        return
    last = NOTES.outputs[-1]
    made = {output for output in NOTES.outputs if output.exists()}
    spec = sys.modules["__main__"].__spec__
    record = {
        "command": [spec.name if spec else sys.argv[0], *sys.argv[1:]],
        "run": NOTES.run,
        "outputs": {relative(file, last.parent): checksum(file) for file in sorted(made)},
        "inputs": {str(file): checksum(file) for file in sorted({*NOTES.inputs} - made)},
        "code": code(),
        "versions": versions(),
        "host": socket.gethostname(),
        "seconds": round(time.monotonic() - BEGAN, 1),
        "peak_memory_mb": peak_memory_mb(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    temporary = path(last).with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.replace(path(last))


def peak_memory_mb() -> int:
    """The most memory that this process has held so far, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes, elsewhere kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)


def processor() -> str:
    """What the processor calls itself; Python has it from Linux as nothing at all."""
    with suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def relative(file: Path, folder: Path) -> str:
    """The file as it is found from the folder."""
    return os.path.relpath(file, folder)


def checksum(file: Path) -> str:
    """The sha256 of a file, or of a folder's description."""
    with (file / "meta.json" if file.is_dir() else file).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def code() -> dict[str, Any]:
    """The modules of this package that are at work, and what they are, to be compared later."""
    prefix = f"{PACKAGE.name}."
    loaded = {name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)}
    if spec := sys.modules["__main__"].__spec__:
        loaded.add(spec.name.removeprefix(prefix))
    modules = sorted(name for name in loaded if source.path(name).exists())
    return {"modules": modules, "fingerprint": source.of(modules)}


def versions() -> dict[str, str]:
    """Of Python and the packages that numbers come from."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
