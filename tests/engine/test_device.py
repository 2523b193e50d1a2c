"""The device of a job and its arithmetic: `fedgrid.engine.device`."""

from dataclasses import replace

import pytest
import torch

from conftest import assert_same, methods, simulate, tiny, uneven
from fedgrid.engine.device import prepare
from fedgrid.models import Classifier


@pytest.fixture
def arithmetic():
    """Puts PyTorch's settings back."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp64"])
def test_a_gpu_rounds_factors_in_tf32_only(arithmetic, precision):
    prepare("cpu", 1, "tf32")
    prepare("cpu", 1, precision)
    assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
    assert torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")


def single(seed: int) -> Classifier:
    """A small network in single precision."""
    return tiny(seed).float()


def test_on_a_cpu_tf32_is_fp32(arithmetic):
    def play(precision: str):
        prepare("cpu", 1, precision)
        data = uneven()
        data = replace(data, mean=data.mean.float(), std=data.std.float())
        return simulate(methods("fedavg"), "loop", data, single, precision=precision).play(3)

    assert_same(play("tf32"), play("fp32"))
