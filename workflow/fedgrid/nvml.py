"""NVIDIA's management library, as far as it is needed: memory and energy of a machine's GPUs.

It neither initialises CUDA nor takes memory of a GPU, so that it can be asked before one is chosen.
"""

import ctypes
from ctypes import byref, c_uint, c_ulonglong, c_void_p

CHANGES_RESULTS = False


class NvmlError(Exception):
    """There is no library, no driver, or no such counter."""


class _Memory(ctypes.Structure):
    _fields_ = [(name, c_ulonglong) for name in ("total", "free", "used")]


def call(name: str, *arguments) -> None:
    """A function of the library; NvmlError unless it succeeds."""
    try:
        status = getattr(ctypes.CDLL("libnvidia-ml.so.1"), name)(*arguments)
    except (OSError, AttributeError) as problem:
        raise NvmlError(str(problem)) from problem
    if status:
        raise NvmlError(f"{name} says {status}")


def memory() -> dict[str, int]:
    """Whole gigabytes of every GPU of this machine, by its UUID."""
    call("nvmlInit_v2")
    count, found = c_uint(), {}
    call("nvmlDeviceGetCount_v2", byref(count))
    for index in range(count.value):
        handle, about = c_void_p(), _Memory()
        identity = ctypes.create_string_buffer(96)
        call("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
        call("nvmlDeviceGetMemoryInfo", handle, byref(about))
        call("nvmlDeviceGetUUID", handle, identity, len(identity))
        found[identity.value.decode()] = about.total // 2**30
    return found


def joules(uuid: str) -> float:
    """What a GPU has used since its driver was loaded."""
    handle, energy = c_void_p(), c_ulonglong()
    call("nvmlInit_v2")
    call("nvmlDeviceGetHandleByUUID", uuid.encode(), byref(handle))
    call("nvmlDeviceGetTotalEnergyConsumption", handle, byref(energy))
    return energy.value / 1000
