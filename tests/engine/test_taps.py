"""Taps that meet only padding: `fedgrid.engine.dead_taps`, and runs without them."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from conftest import IMAGE_MODELS, IMAGE_SHAPES, SMALL_MODELS, federated, simulate
from fedgrid import models
from fedgrid.engine import dead_taps
from fedgrid.engine.state import state_of
from fedgrid.method import Method
from fedgrid.models import Classifier

SHAPE = (1, 4, 4)


def shrinking(seed: int) -> Classifier:
    """Images (1, 4, 4) -> maps of 2x2 and of single pixels -> three classes; padded throughout."""
    torch.manual_seed(seed)
    body = nn.Sequential(
        *(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)),
        *(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.Flatten()),
    )
    model = Classifier(body, 4, 3).double()
    body[1].num_batches_tracked = None
    return model


def clients():
    random = torch.Generator().manual_seed(0)
    return federated(
        [
            (
                torch.randint(0, 256, (n, *SHAPE), generator=random, dtype=torch.uint8),
                torch.randint(0, 3, (n,), generator=random),
            )
            for n in (5, 6, 7)
        ],
        3,
        scale=4,
    )


def run(trimmed: bool, monkeypatch, method=None, backend="loop", **protocol):
    """Three rounds with the taps cut or not; the model as it is written."""
    federation = clients()
    with monkeypatch.context() as patch:
        if not trimmed:
            patch.setattr(dead_taps, "trim", lambda model, shape: {})
        simulation = simulate(
            method or Method(), backend, federation, shrinking,
            clients=3, weight_decay=0.0, augment=[], **protocol,
        )  # fmt: skip
        simulation.play(3)
        return simulation.engine, simulation.engine.complete(simulation.run.server)


def test_cutting_never_changes_an_output():
    cut = 0
    for size, kernel, stride, padding, dilation in product(
        range(1, 7), (1, 2, 3, 5), (1, 2, 3), (0, 1, 2), (1, 2)
    ):
        if size + 2 * padding < dilation * (kernel - 1) + 1:
            continue
        convolution = nn.Conv2d(2, 3, kernel, stride, padding, dilation).double()
        x = torch.randn(4, 2, size, size, dtype=torch.float64)
        before = convolution(x)
        kept = dead_taps.trim(nn.Sequential(convolution), (2, size, size))
        torch.testing.assert_close(convolution(x), before)
        cut += bool(kept)
    assert cut > 20


def test_what_is_cut_sees_no_gradient_and_what_is_left_does():
    full, trimmed = shrinking(0), shrinking(0)
    kept = dead_taps.trim(trimmed, SHAPE)
    assert set(kept) == {"body.3.weight", "body.5.weight"}
    x = torch.randn(8, *SHAPE, dtype=torch.float64)
    for model in (full, trimmed):
        model(x)[1].square().sum().backward()
    for name, where in kept.items():
        gradient = full.get_parameter(name).grad
        torch.testing.assert_close(gradient[where], trimmed.get_parameter(name).grad)
        dead = torch.ones_like(gradient, dtype=bool)
        dead[where] = False
        assert not gradient[dead].any()
        assert gradient[where].abs().amax((0, 1)).all()  # every tap that is left


def test_resnet18_at_32x32_has_6_9_million_dead_weights():
    model = models.build("resnet18", (3, 32, 32), 10)
    before = sum(p.numel() for p in model.parameters())
    dead_taps.trim(model, (3, 32, 32))
    # layer4: four of nine taps in its first convolution, one of nine in the other three
    dead = 256 * 512 * 5 + 3 * 512 * 512 * 8
    assert before - sum(p.numel() for p in model.parameters()) == dead == 6_946_816


def test_a_convolution_that_meets_two_sizes_is_left_alone():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x):
            return self.convolution(x)[..., :1, :1] + self.convolution(x[..., :1, :1])

    assert dead_taps.trim(Twice(), (1, 4, 4)) == {}


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_run_without_dead_taps_ends_with_the_same_whole_model(backend, monkeypatch):
    _, expected = run(False, monkeypatch, backend=backend)
    engine, found = run(True, monkeypatch, backend=backend)
    assert engine.architecture.kept
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    initial = state_of(engine.architecture.build_whole(7))
    dead = torch.ones_like(initial["body.5.weight"], dtype=bool)
    dead[engine.architecture.kept["body.5.weight"]] = False
    assert torch.equal(found["body.5.weight"][dead], initial["body.5.weight"][dead])
    assert (found["body.5.weight"] != initial["body.5.weight"])[~dead].all()


def test_weight_decay_reaches_dead_taps_so_all_are_trained(monkeypatch):
    simulation = simulate(Method(), "loop", clients(), shrinking, clients=3, augment=[])
    assert simulation.engine.protocol["weight_decay"] > 0
    assert not simulation.engine.architecture.kept
    assert simulation.run.server["body.5.weight"].shape == (4, 4, 3, 3)


EVERY = [(name, shape, 0.0) for name in IMAGE_MODELS for shape in IMAGE_SHAPES]
EVERY += [(name, min(IMAGE_SHAPES), 0.001) for name in IMAGE_MODELS]  # all taps are kept
FAST = [(name, (1, 8, 8), 0.0) for name in (*SMALL_MODELS, "resnet18", "vgg11")]
FAST += [("cnn", (1, 8, 8), 0.001)]
FAST += [("cnn", (3, 64, 64), 0.0), ("resnet8", (3, 32, 32), 0.0)]


@pytest.mark.parametrize(
    ("name", "shape", "weight_decay"),
    [pytest.param(*one, marks=[] if one in FAST else pytest.mark.exhaustive) for one in EVERY],
    ids=str,
)
def test_every_model_trains_on_the_images_of_every_data_set(name, shape, weight_decay):
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, *shape), generator=random, dtype=torch.uint8)
    data = federated([(images, torch.arange(8) % 3)], 3, scale=4)
    data = replace(data, mean=data.mean.float(), std=data.std.float())
    simulation = simulate(
        Method(), "loop", data, lambda seed: models.build(name, shape, 3, None, seed),
        clients=1, participation=1.0, local=1, augment=[], precision="fp32", smallest_batch=2,
        weight_decay=weight_decay,
    )  # fmt: skip
    simulation.play(1)
    found = simulation.engine.evaluation.evaluate(simulation.run.server)
    assert len(found["predicted"]) == 3
    whole = simulation.engine.complete(simulation.run.server)
    expected = models.build(name, shape, 3, None, 0).state_dict()
    assert {n: w.shape for n, w in whole.items()} == {n: w.shape for n, w in expected.items()}
