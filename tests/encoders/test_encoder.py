"""The guided encoder of FedSLS and the conventional one of FedSL: `.encoder`, `.autoencoder`."""

import pytest
import torch
from captum.attr import GuidedBackprop
from torch import Tensor, nn
from torch.autograd import grad

from conftest import CLASSES, IMAGE_MODELS, simulate, uneven
from fedgrid import models
from fedgrid.encoders import autoencoder, guided
from fedgrid.engine import samples
from fedgrid.method import Method
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid
from made import STUDIES

X = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double()
Y = torch.tensor([0, 1, 2, 1, 0])


class Plain(nn.Module):
    """Convolutions with a ReLU module each, as Captum needs it."""

    side_paths = ()

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3, stride=2), nn.BatchNorm2d(5)),
            *(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5, 7), nn.ReLU()),
        )
        self.head = nn.Linear(7, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return features, self.head(features)


class Block(nn.Module):
    """A residual block as torchvision writes it: one in-place ReLU, used twice."""

    side_paths = ("downsample",)

    def __init__(self):
        super().__init__()
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)  # defined first, used second
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.norm, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.downsample = nn.Conv2d(3, 4, 1)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out = self.relu(self.norm(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.downsample(x)
        features = self.relu(out).mean((2, 3))
        return features, self.head(features)


def made(kind: type[nn.Module]) -> tuple[nn.Module, dict[str, Tensor]]:
    """A model in evaluation mode, its running statistics not those of a new one; its state."""
    torch.manual_seed(0)
    model = kind().double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)
    return model, dict(model.state_dict(keep_vars=True))


class Logits(nn.Module):
    """The logits alone."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[1]


# --- guided gradients ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Setting backward hooks on ReLU")
def test_guided_gradients_are_captums():
    model, state = made(Plain)
    captum = GuidedBackprop(Logits(model)).attribute(X.clone().requires_grad_(), target=Y)
    _, gradients = guided.guided_gradients(model, state, X, Y, ("label",))
    torch.testing.assert_close(gradients["label"][-1], captum)
    assert captum.abs().max() > 1e-3
    assert not torch.allclose(captum, plain_gradient(model), atol=1e-4)


def plain_gradient(model) -> Tensor:
    x = X.clone().requires_grad_()
    return grad(model(x)[1].gather(1, Y[:, None]).sum(), x)[0]


def test_every_call_of_a_reused_relu_is_guided():
    model, state = made(Block)
    x = X.clone().requires_grad_()
    one = model.conv1(x)
    normed = model.norm(one)
    active = normed.relu()
    two, side = model.conv2(active), model.downsample(x)
    summed = model.norm2(two) + side
    features = summed.relu()
    score = model.head(features.mean((2, 3))).gather(1, Y[:, None]).sum()

    at_summed = grad(score, features, retain_graph=True)[0].clamp(min=0) * (summed > 0)
    at_two = grad(summed, two, at_summed, retain_graph=True)[0]
    at_active = grad(two, active, at_two, retain_graph=True)[0]
    at_normed = at_active.clamp(min=0) * (normed > 0)
    at_one = grad(normed, one, at_normed, retain_graph=True)[0]
    at_x = grad(one, x, at_one, retain_graph=True)[0] + grad(side, x, at_summed)[0]

    outputs, gradients = guided.guided_gradients(model, state, X, Y, ("label",))
    assert list(outputs) == ["conv1#0", "conv2#1", "downsample#2"]
    for found, expected in zip(gradients["label"], (at_one, at_two, at_summed, at_x), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(outputs["conv1#0"], one)
    torch.testing.assert_close(outputs["conv2#1"], two)


def test_guided_relu_passes_only_where_input_and_gradient_are_positive():
    x = torch.tensor([-1.0, 0.0, 2.0, 3.0], requires_grad=True)
    with guided.Guided({}):
        output = torch.relu(x)
    assert grad(output, x, torch.tensor([5.0, 5.0, 5.0, -5.0]))[0].tolist() == [0, 0, 5, 0]


def test_relus_are_as_before_afterwards():
    model, state = made(Plain)
    before = plain_gradient(model)
    guided.guided_gradients(model, state, X, Y)
    assert torch.equal(plain_gradient(model), before)


def test_targets_are_the_labels_logit_the_largest_and_the_sum():
    model, state = made(Plain)
    predicted = model(X)[1].argmax(1)
    _, gradients = guided.guided_gradients(model, state, X, Y)
    _, largest = guided.guided_gradients(model, state, X, predicted, ("label",))
    assert torch.equal(gradients["max"][-1], largest["label"][-1])
    assert not torch.allclose(gradients["label"][-1], gradients["sum"][-1])


# --- contributions ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Plain, Block])
def test_contributions_are_sums_of_norms_over_images(kind):
    model, state = made(kind)
    found = guided.contributions(model, state, X, Y)
    expected = {name: torch.zeros(3, 2, 2).double() for name in found}
    for x, y in zip(X.split(1), Y.split(1), strict=True):
        outputs, gradients = guided.guided_gradients(model, state, x, y)
        for target, name in enumerate(guided.TARGETS):
            for (layer, output), g in zip(outputs.items(), gradients[name][:-1], strict=True):
                for reading, map in enumerate((g * output.relu(), g)):
                    mean = map[0].sum(0) / output.shape[1]  # over channels
                    norm = sum(value**2 for value in mean.flatten()) ** 0.5
                    expected[layer][target, reading, 0] += norm
                    expected[layer][target, reading, 1] += norm**0.5
    torch.testing.assert_close(found, expected)


def test_images_do_not_mix():
    model, state = made(Block)
    _, together = guided.guided_gradients(model, state, X, Y, ("label",))
    for i in range(len(X)):
        _, alone = guided.guided_gradients(model, state, X[i : i + 1], Y[i : i + 1], ("label",))
        for one, other in zip(alone["label"], together["label"], strict=True):
            torch.testing.assert_close(one[0], other[i])


def client_sums(chunk: int, monkeypatch) -> tuple[dict[str, Tensor], list[int]]:
    """A client's contributions through the engine, and how many images were passed at a time."""
    monkeypatch.setattr(samples, "CHUNK", chunk)
    made, sizes = simulate(Method(), federation=uneven((11,))), []

    def function(x, y):
        sizes.append(len(x))
        return guided.contributions(made.engine.architecture.empty, made.run.server, x, y)

    return made.engine.samples.total(0, function), sizes


@pytest.mark.parametrize("chunk", [1, 4, 11, 64])
def test_contributions_do_not_depend_on_the_chunks(chunk, monkeypatch):
    whole, _ = client_sums(1000, monkeypatch)
    found, sizes = client_sums(chunk, monkeypatch)
    torch.testing.assert_close(found, whole)
    assert max(sizes) <= chunk
    assert sum(sizes) == 11


def built(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A model of the package in evaluation mode, and its state."""
    model = models.build(name, (3, 32, 32), 10, None, 0).eval()
    return model, dict(model.state_dict())


INDEPENDENT = {n: source.literal(f"models.{n}", "INDEPENDENT", True) for n in IMAGE_MODELS}
IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", INDEPENDENT)
def test_a_models_file_says_whether_it_takes_every_image_by_itself(name):
    model, _ = built(name)
    with torch.no_grad():
        together, alone = model(IMAGES)[1][:2], model(IMAGES[:2])[1]
    assert torch.allclose(together, alone, atol=1e-4) == INDEPENDENT[name]


@pytest.mark.parametrize("name", [name for name, alone in INDEPENDENT.items() if not alone])
def test_no_saliency_of_a_model_that_mixes_the_images_of_a_batch(name):
    with pytest.raises(UsageError, match="BatchNorm without running statistics, which mixes"):
        guided.contributions(*built(name), IMAGES, torch.arange(4))


@pytest.mark.parametrize("method", ["fedsls", "fedsls_dynamic", "fedsls-tau1"])
def test_saliency_with_such_a_model_is_refused_before_anything_runs(method):
    block = {"protocol": "fedlmd-resnet8", "dataset": "cifar10", "partition": "dir0.1"}
    scales = {"s": {"grids": {"g": [block | {"method": method, "seed": 0}]}}}
    study = STUDIES["fedsls"] | {"scales": scales}
    with pytest.raises(UsageError, match=f"method `{method}` encodes every image by itself"):
        Grid(STUDIES | {"fedsls": study | {"products": {}}})


@pytest.mark.parametrize(("name", "main", "side"), [("resnet18", 17, 3), ("resnet50", 49, 4)])
def test_resnets_convolutions(name, main, side):
    model, state = built(name)
    outputs, _ = guided.guided_gradients(model, state, IMAGES[:1], torch.zeros(1, dtype=int))
    where = guided.main_path(model, outputs)
    assert (int(where.sum()), int((~where).sum())) == (main, side)
    first = [n.split("#")[0].split(".", 1)[1] for n in outputs][:3]
    assert first == ["conv1", "layer1.0.conv1", "layer1.0.conv2"]
    on_path = [name for name, counts in zip(outputs, where, strict=True) if counts]
    assert sorted(on_path, key=lambda n: int(n.split("#")[1])) == on_path


def test_a_convolution_that_is_called_twice_counts_twice():
    class Twice(Plain):
        def forward(self, x):
            x = self.body[0](self.body[0](x)[:, :3])
            return x.flatten(1), x.mean((2, 3))

    model, state = made(Twice)
    outputs, _ = guided.guided_gradients(model, state, X, Y, ("label",))
    assert list(outputs) == ["body.0#0", "body.0#1"]


# --- readings --------------------------------------------------------------------------------


def test_layers_count_less_the_deeper_they_are():
    contributions = torch.ones(3, 2, 2, 2, 4)
    main = torch.tensor([True, True, False, True])
    assert guided.Choice(tau=0.5).layered(contributions, main)[0].tolist() == [1, 0.5, 0.25]
    assert guided.Choice(tau=0.5).weights(contributions, main).tolist() == [1.75, 1.75]
    assert guided.Choice(layers="all").weights(contributions, main).tolist() == [1.875, 1.875]


# --- the conventional encoder ----------------------------------------------------------------


@pytest.mark.parametrize("f", autoencoder.FACTORS)
@pytest.mark.parametrize("channels", [1, 3])
def test_the_autoencoder_shrinks_images_f_times(f, channels):
    model = autoencoder.autoencoder(channels, f)
    x = torch.rand(2, channels, 16, 24)
    assert model[0](x).shape == (2, 4, 16 // f, 24 // f)
    assert model(x).shape == x.shape
    strides = [m.stride for m in model[0] if isinstance(m, nn.Conv2d)]
    assert strides == [(2, 2)] * (f.bit_length() - 1) + [(1, 1)]


def test_training_an_autoencoder_lowers_its_error():
    torch.manual_seed(0)
    model, x = autoencoder.autoencoder(1, 2), torch.rand(8, 1, 8, 8)
    errors = [float((model(x) - x).square().mean().detach())]
    autoencoder.train(model, [x] * 50, lr=0.1, momentum=0.9)
    errors.append(float((model(x) - x).square().mean().detach()))
    assert errors[1] < 0.7 * errors[0]


def test_norms_of_latents_written_out():
    # Channel means (3, 4) and (0, 2) of two images: norms 5 and 2.
    latent = torch.tensor([[[[2.0, 5]], [[4, 3]]], [[[1, 2]], [[-1, 2]]]])
    assert autoencoder.norms(latent) == 7


def test_area_averages_grey_values():
    # Luminance 0.299 r + 0.587 g + 0.114 b, averaged over 2x2 pixels.
    x = torch.zeros(1, 3, 2, 2)
    x[0, 0, 0, 0], x[0, 1, 0, 1], x[0, 2, 1, 1] = 1, 1, 1
    torch.testing.assert_close(autoencoder.area(x, 2), torch.full((1, 1, 1, 1), 0.25))
    grey = torch.arange(4.0).view(1, 1, 2, 2)
    torch.testing.assert_close(autoencoder.area(grey, 2), torch.full((1, 1, 1, 1), 1.5))
