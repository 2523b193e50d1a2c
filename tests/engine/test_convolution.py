"""Convolutions of a stack: `fedgrid.engine.convolution`."""

from itertools import product
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.func import vmap

from conftest import assert_same, methods, simulate, uneven
from fedgrid.engine import convolution

GEOMETRIES = [
    *product([(7, 7), (3, 3)], [(1, 1), (2, 2)], [(1, 1), (3, 3)]),
    ((1, 1), (2, 2), (0, 0)),
    ((2, 1), (1, 1), (1, 0)),  # a kernel without its dead taps
    ((3, 3), (2, 1), (0, 1)),
    ((2, 2), (3, 4), (1, 0)),
]


@pytest.fixture
def everywhere(monkeypatch):
    """Products on a CPU, too."""
    monkeypatch.setattr(convolution, "worth", lambda x, weight: True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "padding"), GEOMETRIES)
def test_a_product_is_the_convolution(kernel, stride, padding, bias, everywhere):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, kernel, stride, padding, bias=bias).double() for _ in range(2)]
    x = torch.randn(2, 5, 3, 8, 9, dtype=torch.float64, requires_grad=True)
    weights = torch.stack([layer.weight for layer in layers]).detach().requires_grad_()
    biases = [torch.stack([layer.bias for layer in layers]).detach()] if bias else []
    places = {"stride": stride, "padding": padding}
    found = vmap(lambda *of: convolution.conv2d(*of, **places))(x, weights, *biases)
    expected = torch.stack([layer(one) for layer, one in zip(layers, x, strict=True)])
    torch.testing.assert_close(found, expected)
    by_layer = [layer.weight for layer in layers]
    ways = torch.autograd.grad(expected.square().sum(), [x, *by_layer])
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), [x, weights]), (ways[0], torch.stack(ways[1:]))
    )


@pytest.mark.parametrize(("dim", "size", "step"), [(2, 3, 1), (3, 3, 2), (-1, 1, 2), (1, 2, 3)])
def test_windows_are_folded_back_as_torch_does_it(dim, size, step):
    x = torch.randn(2, 5, 10, 11, dtype=torch.float64)
    given = torch.randn_like(x.unfold(dim, size, step)), [*x.shape], dim, size, step
    expected = torch.ops.aten.unfold_backward(*given)
    torch.testing.assert_close(convolution.fold(*given), expected)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding="valid"),
    ],
)
def test_other_convolutions_are_torchs(layer, everywhere):
    x, places = torch.randn(2, 4, 8, 8), (layer.stride, layer.padding, layer.dilation)
    found = convolution.conv2d(x, layer.weight, layer.bias, *places, layer.groups)
    torch.testing.assert_close(found, layer(x))


def test_a_product_is_for_small_kernels_on_a_gpu(monkeypatch):
    on_gpu = Mock(is_cuda=True)
    assert convolution.worth(on_gpu, torch.zeros(2, 2, 3, 3))
    assert not convolution.worth(on_gpu, torch.zeros(2, 2, 5, 5))
    made = Mock(wraps=convolution.product)
    monkeypatch.setattr(convolution, "product", made)
    simulate(methods("fedavg"), "stacked", uneven()).play(1)
    assert not made.called


@pytest.mark.parametrize("name", ["fedavg", "moon"])
def test_a_stack_of_products_trains_as_the_loop_does(name, everywhere, monkeypatch):
    made = Mock(wraps=convolution.product)
    monkeypatch.setattr(convolution, "product", made)
    stacked, loop = (simulate(methods(name), of, uneven()).play(2) for of in ("stacked", "loop"))
    assert_same(stacked, loop, rtol=1e-9, atol=1e-10)
    assert made.called
