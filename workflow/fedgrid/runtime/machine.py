"""The machine that works: processor, memory, versions of packages."""

import os
import platform
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedgrid.runtime.names import UsageError, shown

PACKAGES = ("torch", "torchvision", "numpy", "pandas", "scikit-image", "safetensors")
# Variables by which a library computes float32 in a lower precision, and the values that do not.
LOWERING = {
    "NVIDIA_TF32_OVERRIDE": ("", "0"),
    "ONEDNN_DEFAULT_FPMATH_MODE": ("", "STRICT"),
    "DNNL_DEFAULT_FPMATH_MODE": ("", "STRICT"),
}
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}  # Linux's flags, widest first


def refuse_lowering() -> None:
    """Raise a UsageError for a variable of the environment that lowers the precision of float32."""
    for name, harmless in LOWERING.items():
        if (value := os.environ.get(name, "")).upper() not in harmless:
            raise UsageError(
                f"the environment's variable {name} is {shown(value)!r}, by which float32 loses "
                "precision: remove the variable, and start again"
            )


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


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that can change numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
