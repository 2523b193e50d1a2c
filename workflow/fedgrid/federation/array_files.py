"""Read and write files of arrays: .npz files, and .safetensors files."""

import os
import re
from pathlib import Path
from typing import Any

from fedgrid.runtime.files import whole


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz file; UsageError if it is damaged."""
    import numpy as np

    with whole(str(path)), np.load(path) as arrays:
        return arrays.files


def read_arrays(path: Path, *names: str) -> dict[str, Any]:
    """Return the arrays `names` of an .npz file; UsageError if it is damaged or lacks one."""
    import numpy as np

    with whole(str(path)), np.load(path) as arrays:
        return {name: arrays[name] for name in names}


def save_tensors(tensors: dict[str, Any], path: Path, about: dict[str, str] | None = None) -> None:
    """Write a .safetensors file; OSError if the disk is full."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, about)
    except SafetensorError as problem:
        if not (code := re.search(r"os error (\d+)", str(problem))):
            raise
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(path)) from problem
