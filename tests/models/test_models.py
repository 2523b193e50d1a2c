"""Every model: `fedgrid.models`."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from conftest import (
    BACKENDS,
    HAND,
    IMAGE_MODELS,
    IMAGE_SHAPES,
    SMALL_MODELS,
    assert_same,
    federated,
    methods,
    simulate,
    slow_but,
)
from fedgrid import models
from fedgrid.engine.state import state_of
from fedgrid.method import Method
from fedgrid.models import _size, _vgg
from fedgrid.runtime import download
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.stages import weights
from fedgrid.store.identity import identify
from fedgrid.study.paths import input_paths
from fedgrid.study.protocol import PROTOCOL

SHAPE = (3, 32, 32)
every_model = pytest.mark.parametrize("name", slow_but(SMALL_MODELS, IMAGE_MODELS))


def made(name: str, seed: int = 0, **options) -> models.Classifier:
    return models.build(name, SHAPE, 10, seed=seed, **options)


@every_model
@pytest.mark.parametrize("shape", IMAGE_SHAPES)
def test_a_model_gives_features_and_logits_of_any_datasets_images(name, shape):
    model = models.build(name, shape, 10).eval()
    features, logits = model(torch.rand(2, *shape))
    assert features.shape == (2, model.head.in_features)
    assert logits.shape == (2, 10)
    torch.testing.assert_close(logits, model.head(features))
    heads = [n for n, _ in model.named_parameters() if not n.startswith("body.")]
    assert heads == ["head.weight", "head.bias"]
    assert all(w.is_floating_point() for w in state_of(model).values())
    assert isinstance(source.literal(f"models.{name}", "WEIGHTS"), dict)


@every_model
def test_weights_are_drawn_from_the_seed_alone(name):
    torch.manual_seed(1)
    one = state_of(made(name, seed=3))
    random = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), random)  # building drew nothing from the global generator
    same, other = state_of(made(name, seed=3)), state_of(made(name, seed=4))
    assert all(torch.equal(w, same[n]) for n, w in one.items())
    assert not torch.equal(one["head.weight"], other["head.weight"])


@every_model
def test_a_model_trains_alike_in_both_backends(name):
    random = torch.Generator().manual_seed(0)
    clients = [
        (torch.randint(0, 256, (n, *SHAPE), generator=random).byte(), torch.arange(n))
        for n in (4, 5)
    ]
    data, protocol = federated(clients, 10, 1), HAND | {"lr": 1e-4, "batch": 5}
    runs = [
        simulate(Method(), backend, data, lambda seed: made(name, seed), **protocol).play()
        for backend in BACKENDS
    ]
    assert_same(*runs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        # torchvision's 11,689,512 and 25,557,032 with classifiers of 513,000 and 2,049,000, and
        # ours of 5,130 and 20,490
        ("resnet18", SHAPE, 10, 11_181_642),
        ("resnet50", SHAPE, 10, 23_528_522),
        # of the published codes
        ("mobilenet", SHAPE, 10, 3_217_226),
        ("resnet8", SHAPE, 10, 78_042),
        ("fedavg_cnn", SHAPE, 10, 2_156_490),
        ("fedavg_cnn", (1, 28, 28), 10, 1_663_370),
        ("femnist_cnn", (1, 28, 28), 62, 1_690_046),
        ("vgg11", SHAPE, 10, 9_354_378),
        ("vgg11", SHAPE, 100, 9_377_508),
        # worked out; BatchNorm has two numbers for each of 4,224 maps
        ("vgg16", SHAPE, 10, 14_781_642),
        ("vgg16_bn", SHAPE, 10, 14_781_642 + 2 * 4224),
    ],
)
def test_models_have_as_many_parameters_as_those_of_their_papers(name, shape, classes, parameters):
    with torch.device("meta"):
        model = models.draw(name, shape, classes, 0)
    assert sum(w.numel() for w in model.parameters()) == parameters


def test_resnet18_is_torchvisions():
    from torchvision.models import resnet18

    theirs, ours = resnet18().eval(), made("resnet18").eval()
    theirs.fc = nn.Identity()
    theirs.load_state_dict(ours.body.state_dict(), strict=False)
    x = torch.rand(2, *SHAPE)
    torch.testing.assert_close(ours(x)[0], theirs(x))


# --- weights ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "suffix"), [("resnet8", ".pth"), ("resnet8", ".safetensors"), ("cnn", ".safetensors")]
)
def test_a_body_is_loaded_and_the_classifier_drawn(name, suffix, tmp_path):
    path, trained = tmp_path / f"weights{suffix}", made(name, seed=5)
    body = {n: w.clone().contiguous() for n, w in trained.body.state_dict().items()}
    body["head.weight"] = torch.ones(3)  # a published file has a classifier of its own
    (save_file if suffix == ".safetensors" else torch.save)(body, path)
    loaded, fresh = made(name, seed=6, weights=path), made(name, seed=6)
    assert all(torch.equal(w, body[n]) for n, w in loaded.body.state_dict().items())
    assert torch.equal(loaded.head.weight, fresh.head.weight)


def published(name: str, folder: Path) -> tuple[Path, models.Classifier]:
    """A file as `fedgrid weights` makes it of ten published classes, and what it was made of."""
    trained, path = made(name, seed=5), folder / "weights.safetensors"
    named = {n.removeprefix("body."): w.contiguous() for n, w in trained.state_dict().items()}
    save_file(named, path)
    return path, trained


@every_model
def test_the_published_classifier_is_kept_when_it_is_asked_for(name, tmp_path):
    path, trained = published(name, tmp_path)
    loaded = made(name, seed=6, weights=path, head=True).state_dict()
    assert all(torch.equal(w, loaded[n]) for n, w in trained.state_dict().items())
    drawn = made(name, seed=6, weights=path)
    assert torch.equal(drawn.head.weight, made(name, seed=6).head.weight)
    assert torch.equal(drawn.head.bias, made(name, seed=6).head.bias)


def test_a_published_classifier_over_other_classes_is_refused(tmp_path):
    path, _ = published("cnn", tmp_path)
    with pytest.raises(UsageError, match=r"`head.weight` is \(10, 64\), not \(7, 64\)"):
        models.build("cnn", SHAPE, 7, path, head=True)
    models.build("cnn", SHAPE, 7, path)


def test_weights_without_a_classifier_cannot_give_one(tmp_path):
    save_file(made("cnn").body.state_dict(), tmp_path / "weights.safetensors")
    with pytest.raises(UsageError, match=r"lacks `head\.bias`"):
        made("cnn", weights=tmp_path / "weights.safetensors", head=True)


def test_published_weights_are_converted_with_their_classifier(tmp_path, monkeypatch):
    from torchvision.models import resnet18

    torch.manual_seed(0)
    theirs = resnet18().eval()
    torch.save(theirs.state_dict(), tmp_path / "resnet18.pth")
    monkeypatch.setattr(download, "fetch", lambda url, path, checksum: tmp_path / "resnet18.pth")
    out = tmp_path / "weights.safetensors"
    weights.convert("ResNet18_Weights.IMAGENET1K_V1", tmp_path, out)
    ours, x = models.build("resnet18", SHAPE, 1000, out, head=True).eval(), torch.rand(2, *SHAPE)
    assert torch.equal(ours(x)[1], theirs(x))


def test_a_saved_run_can_be_started_from(tmp_path):
    path, trained = tmp_path / "model.safetensors", made("cnn", seed=5)
    save_file(state_of(trained), path)
    loaded = made("cnn", weights=path)
    assert torch.equal(loaded.body[0].weight, trained.body[0].weight)


def test_weights_of_your_own_are_an_input_of_the_run(tmp_path):
    """So other weights in the same file are other work."""
    path = tmp_path / "mine.safetensors"
    run = {"name": dict.fromkeys(("protocol", "dataset", "partition", "method"), "a")}
    run |= {"dataset": "digits", "protocol": PROTOCOL | {"weights": str(path)}, "method": {}}
    run["name"] |= {"seed": 0}
    found = Path("results") / input_paths(run)["weights"]
    assert found == path
    keys = set()
    for content in (b"one", b"two"):
        path.write_bytes(content)
        keys.add(identify("partition", run | {"partition": "iid"}, {"weights": found}).key)
    assert len(keys) == 2
    assert "weights" not in input_paths(run | {"protocol": PROTOCOL})


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.pth do not exist"):
        made("cnn", weights=tmp_path / "none.pth")


@pytest.mark.parametrize("name", ["vgg16", "vgg16_bn"])
def test_vggs_convolutions_are_torchvisions(name):
    from torchvision import models as theirs

    with torch.device("meta"):  # shapes without weights
        wanted = getattr(theirs, name)().features.state_dict()
    found = made(name).body.features.state_dict()
    wanted = {n: w.shape for n, w in wanted.items() if "num_batches" not in n}
    assert [(n, w.shape) for n, w in found.items()] == [*wanted.items()]


def test_vggs_weights_are_drawn_as_torchvisions():
    weights = made("vgg16").state_dict()
    wider, hidden = weights["body.features.10.weight"], weights["body.hidden.weight"]
    assert wider.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)  # 128 to 256 maps
    assert hidden.std().item() == pytest.approx(0.01, rel=0.02)
    assert not any(w.any() for n, w in weights.items() if n.endswith("bias") and "body" in n)


def test_vgg_puts_a_grey_image_in_the_middle_of_a_mean_grey_colour_image():
    found = _vgg.framed(torch.ones(2, 1, 28, 27))
    expected = torch.zeros(2, 3, 32, 32)
    expected[:, :, 2:30, 2:29] = 1
    assert torch.equal(found, expected)
    large = torch.rand(2, 3, 40, 32)
    assert torch.equal(_vgg.framed(large), large)


@pytest.mark.parametrize("name", ["mobilenet", "resnet8"])
def test_batch_statistics_are_taken_in_evaluations_too(name):
    model = made(name)
    assert not any("running" in key for key in model.state_dict())
    x = torch.rand(4, *SHAPE)
    torch.testing.assert_close(model.eval()(x)[1], model.train()(x)[1])


def test_the_stack_leaves_padding_out_of_a_teachers_batch_statistics():
    def build(seed: int):
        return models.build("resnet8", (1, 6, 6), 3, seed=seed).double()

    runs = [
        simulate(methods("fedntd"), backend, build=build, smallest_batch=2).play(2)
        for backend in BACKENDS
    ]
    assert_same(*runs, rtol=1e-7, atol=1e-9)


# -- sizes ----------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64)])
def test_the_size_of_a_model_is_that_of_its_weights(name, shape):
    model = models.build(name, shape, 10)
    found = _size.measure(name, [*shape], 10, 0)
    assert found["weights"] * 1e6 == sum(x.nbytes for x in model.state_dict().values())
    assert found == _size.measure_on("cpu", name, [*shape], 10, 0)
    assert found["training"] >= found["evaluation"] > 0


def test_the_activations_of_a_model_written_out():
    """A linear layer keeps its inputs, ReLU its outputs; the second layer is the largest."""
    found, inputs, units = _size.measure("mlp", [1, 5, 5], 10, 0), 4 * 25, 4 * 200
    assert found["training"] * 1e6 == inputs + 2 * units + 2 * units
    assert found["evaluation"] * 1e6 == inputs + 2 * units


def test_a_model_that_needs_numbers_is_measured_on_the_cpu(monkeypatch):
    wanted, plain = _size.measure("cnn", [3, 32, 32], 10, 0), models.draw

    def draw(*arguments):
        assert float(torch.zeros(1)) == 0  # fails on the device "meta"
        return plain(*arguments)

    monkeypatch.setattr(models, "draw", draw)
    assert _size.measure("cnn", [3, 32, 32], 10, 0) == wanted
