"""Records: inputs, code, command and machine of a result, in `.<file>.record` beside it.

Every command returns what it read and wrote (`Work`), and its record is written when it has
succeeded. `fedgrid verify` compares files with records.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgrid.runtime.code import source
from fedgrid.runtime.files import checksum, replacing
from fedgrid.runtime.machine import peak_memory_mb, versions
from fedgrid.runtime.resolved import Run

BEGAN = time.monotonic()
# How the variables of the environment begin that can change how libraries round.
LIBRARIES = (
    *("ATEN_", "CUBLAS_", "CUDNN_", "DNNL_", "KMP_", "MKL_", "NPY_", "NVIDIA_TF32_", "OMP_"),
    *("ONEDNN_", "OPENBLAS_", "TORCH_", "TORCHINDUCTOR_"),
)


@dataclass(frozen=True)
class Work:
    """The files that a command wrote (the record lies beside the last one) and read."""

    outputs: Sequence[Path]
    inputs: Iterable[Path] = ()
    run: Run | None = None  # the resolved run, for a command about one run
    code: Sequence[str] = ()  # the modules that the fingerprint of its code begins with


@dataclass(frozen=True)
class Command:
    """A command that runs in a process with others: its words and its beginning."""

    words: list[str]
    began: float  # by time.monotonic


def path(output: Path) -> Path:
    return output.with_name(f".{output.name}.record")


def write(work: Work, command: Command | None = None) -> None:
    """Write the record of a command, by default of this process, beside its last file."""
    last, made = work.outputs[-1], {*work.outputs}
    if command is None:
        spec = sys.modules["__main__"].__spec__
        command = Command([spec.name if spec else sys.argv[0], *sys.argv[1:]], BEGAN)
    record = {
        "command": command.words,
        "run": work.run,
        "outputs": {os.path.relpath(file, last.parent): checksum(file) for file in sorted(made)},
        "inputs": {str(file): checksum(file) for file in sorted({*work.inputs} - made)},
        "code": {"modules": [*work.code], "fingerprint": source.fingerprint(*work.code)},
        "versions": versions(),
        "environment": {n: v for n, v in sorted(os.environ.items()) if n.startswith(LIBRARIES)},
        "host": socket.gethostname(),
        "seconds": round(time.monotonic() - command.began, 1),
        "peak_memory_mb": peak_memory_mb(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with replacing(path(last), sync=False) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
