"""Models in blocks, and their initial weights: `fedgrid.models`, `BLOCKS` in a model's file."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from conftest import TOKEN_MODELS
from fedgrid import models
from fedgrid.runtime.code import contract, source
from fedgrid.runtime.names import UsageError, registered

BLOCKS = {name: source.literal(f"models.{name}", "BLOCKS", ()) for name in registered("models")}
WITH_BLOCKS = [name for name, blocks in BLOCKS.items() if blocks]


def built(name: str, classes: int = 10) -> models.Classifier:
    """A model of the package for inputs that it takes."""
    if name in TOKEN_MODELS:
        return models.build(name, (6,), classes, tokens=9).eval()
    return models.build(name, (3, 32, 32), classes).eval()


def parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_the_blocks_one_after_the_other_are_the_model(name):
    model = built(name)
    contract.model(name)
    names = [*dict(model.body.named_children()), "head"]
    starts = [*map(names.index, model.blocks), len(names)]
    x = torch.rand(2, 3, 32, 32) if name not in TOKEN_MODELS else torch.tensor([[1, 2], [8, 0]])
    _, expected = model(x)
    for start, end in pairwise(starts):
        block = [model.get_submodule(n if n == "head" else f"body.{n}") for n in names[start:end]]
        assert any(parameters(module) for module in block)
        for module in block:
            x = module(x)
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize(
    ("name", "linear"),
    [("cnn", 2), ("fedavg_cnn", 2), ("femnist_cnn", 2), ("vgg11", 2), ("resnet8", 1)],
)
def test_the_encoder_ends_where_linear_layers_begin(name, linear):
    model = built(name)
    names = [*dict(model.body.named_children()), "head"]
    start = names.index(model.blocks[model.encoder])
    parts = {n: model.get_submodule(n if n == "head" else f"body.{n}") for n in names}
    layers = [[m for m in part.modules() if hasattr(m, "weight")] for part in parts.values()]
    assert not any(isinstance(layer, nn.Linear) for part in layers[:start] for layer in part)
    after = [layer for part in layers[start:] for layer in part]
    assert [*map(type, after)] == [nn.Linear] * linear


def test_vgg11_takes_a_grey_small_image_as_a_colour_image_with_a_margin():
    grey = models.build("vgg11", (1, 28, 28), 10).eval()
    x = torch.rand(2, 1, 28, 28)
    framed = nn.functional.pad(x, (2, 2, 2, 2)).repeat(1, 3, 1, 1)
    torch.testing.assert_close(grey(x)[1], built("vgg11")(framed)[1])


def test_vgg11_pools_where_the_paper_does():
    shapes, x = [], torch.rand(1, 3, 32, 32)
    for block in built("vgg11").body:
        shapes.append(tuple((x := block(x)).shape[1:]))
    assert shapes == [(128, 8, 8), (256, 4, 4), (512, 2, 2), (512,), (256,)]
    letters = {nn.Conv2d: "c", nn.MaxPool2d: "M", nn.Linear: "l"}
    blocks = ["".join(letters.get(type(m), "") for m in block) for block in built("vgg11").body]
    assert blocks == ["cMcM", "ccM", "ccM", "ccM", "l"]


def test_femnist_cnn_is_fedavg_cnn_with_other_initial_weights():
    one, other = (models.build(n, (1, 28, 28), 62) for n in ("femnist_cnn", "fedavg_cnn"))
    weights = zip(other.state_dict(), one.state_dict().values(), strict=True)
    other.load_state_dict(dict(weights))
    x = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(one(x)[1], other(x)[1])


@pytest.mark.parametrize("name", ["vgg11", "femnist_cnn"])
def test_initial_weights_are_those_of_the_papers_code(name):
    linear, convolutions = [], []
    for module in models.build(name, (1, 28, 28), 62).modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            assert not module.bias.any()
            (linear if isinstance(module, nn.Linear) else convolutions).append(module)
    for layer in linear:  # the head too
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.03)
    for layer in convolutions:
        fan_out = layer.weight.shape[0] * layer.weight[0, 0].numel()
        assert layer.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)


def test_tokens_and_images_are_not_mixed_up():
    with pytest.raises(UsageError, match="char_lstm takes tokens, and the inputs are images"):
        models.build("char_lstm", (1, 28, 28), 10)
    with pytest.raises(UsageError, match="cnn takes images, and the inputs are tokens"):
        models.build("cnn", (80,), 81, tokens=81)
