"""Floating point operations of a local step: `fedgrid.engine.operations`."""

import numpy as np
import pytest
import torch
from torch import nn

from conftest import BACKENDS, PROTOCOL, assert_same, methods, simulate, uneven
from fedgrid.encoders import guided
from fedgrid.engine.operations import counted
from fedgrid.federation import schedule
from fedgrid.method import Method
from fedgrid.models import Classifier
from fedgrid.training import results

SIZES = (5, 9, 12, 6, 8, 7)
SIDE, HIDDEN, CLASSES = 6, 4, 3
BODY, HEAD = 2 * SIDE**2 * HIDDEN, 2 * HIDDEN * CLASSES  # a multiplication and an addition each
STEP = 2 * BODY + 3 * HEAD  # forward, and gradients: of weights, and of what enters the head
INTO, AGAIN = 2 * SIDE * 4 * HIDDEN, 2 * HIDDEN * 4 * HIDDEN  # of the gates of an LSTM


def layers() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, HIDDEN), nn.ReLU())


class Rows(nn.Module):
    """A recurrent layer over the rows of an image."""

    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.layer = kind(SIDE, HIDDEN, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[:, 0])[0][:, -1]


def played(method: Method, backend: str = "loop", body=layers, **protocol):
    """A run after its first round, of a network whose operations can be counted by hand."""
    run = simulate(
        method,
        backend,
        uneven(SIZES),
        lambda seed: Classifier(body(), HIDDEN, CLASSES),
        **{"metrics": ["operations"]} | protocol,
    )
    run.play(1)
    return run


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch", [2, 4])
def test_a_step_of_fedavg_by_hand_whatever_the_batch(backend, batch):
    assert played(Method(), backend, batch=batch).engine.operations == STEP


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("scaffold", STEP),  # adds numbers to the gradient, element by element
        ("fedsam", 2 * STEP),
        ("fedgkd", STEP + BODY + HEAD),  # the teacher's forward pass
        ("ditto", 2 * STEP),  # two models
    ],
)
def test_a_step_has_all_passes_of_its_method(name, by_hand):
    assert played(methods(name)).engine.operations == by_hand


def test_an_lstm_is_counted_step_by_step():
    forward = SIDE * (INTO + AGAIN)
    backward = SIDE * (INTO + AGAIN) + (SIDE - 1) * AGAIN  # the first state has no gradient
    body = played(Method(), body=lambda: Rows(nn.LSTM)).engine.operations - 3 * HEAD
    assert body == forward + backward


def test_what_cannot_be_counted_is_left_out_of_the_summary():
    run = played(Method(), body=lambda: Rows(nn.GRU))
    assert run.engine.operations is None
    assert results.count_work(run.engine).keys() == {"parameters", "samples_per_round"}


def test_the_summary_has_size_and_work():
    engine = played(Method(), local=2, local_unit="epochs").engine
    assert results.count_work(engine) == {
        "parameters": (SIDE**2 + 1) * HIDDEN + (HIDDEN + 1) * CLASSES,
        "samples_per_round": pytest.approx(2 * (4 + 8 + 12 + 6 + 8 + 7) / 6, abs=1e-3),
        "flops_per_sample": STEP,
        "flops_around": 0,
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_clients_compute_after_their_steps_counts_for_all_of_their_samples(backend):
    work = results.count_work(played(methods("contribution"), backend).engine)
    assert work["flops_per_sample"] == STEP
    assert work["flops_around"] == pytest.approx((BODY + HEAD) * sum(SIZES) / len(SIZES))


def test_saliency_is_counted_though_it_differentiates_by_activations():
    network = Classifier(nn.Sequential(nn.Conv2d(1, HIDDEN, SIDE), nn.Flatten()), HIDDEN, CLASSES)
    x, y = torch.zeros(2, 1, SIDE, SIDE), torch.zeros(2, dtype=torch.long)
    given = guided.contributions, network.eval(), network.state_dict(), x, y, ("label",)
    assert counted(*given)[1] == 2 * 2 * (BODY + HEAD)  # forward, and back to the image


@pytest.mark.parametrize(
    ("method", "arrays", "wanted"),
    [
        ({"fedavg": {}}, {}, {"flops_before": 0}),
        ({"fedsls": {}}, {"saliency": {"flops": 7.0}}, {"flops_before": 7}),
        ({"fedsls": {}}, {"saliency": {"main": True}}, {}),  # of an earlier version
        ({"fedsl": {"f": 4}}, {"latents": {"flops/f=2": 1, "flops/f=4": 3}}, {"flops_before": 3}),
        ({"fedsl": {"f": 8}}, {"latents": {"flops/f=8": np.nan}}, {}),  # steps are not known
    ],
)
def test_operations_before_the_first_round_are_those_of_the_stages_that_a_method_needs(
    tmp_path, method, arrays, wanted
):
    for stage, of in arrays.items():
        np.savez(tmp_path / f"{stage}.npz", **of)
    paths = {stage: tmp_path / f"{stage}.npz" for stage in arrays}
    assert results.count_before({"method": method}, paths) == wanted


def test_samples_of_a_round_by_hand():
    # Batches of 4 and at least 2: of 5 and 9 samples the last one is dropped; 1 is used twice.
    epochs = PROTOCOL | {"local_unit": "epochs", "local": 3}
    assert schedule.mean_samples([5, 9, 6, 1], epochs) == 3 * (4 + 8 + 6 + 2) / 4
    steps = PROTOCOL | {"local_unit": "steps", "local": 3}
    assert schedule.mean_samples([5, 8, 0], steps) == 3 * 4  # an empty client does not train


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["fedrep", "contribution", "apfl"])
def test_counting_changes_no_number(backend, name):
    counted = simulate(methods(name), backend, uneven(SIZES), metrics=["operations"]).play(3)
    assert_same(counted, simulate(methods(name), backend, uneven(SIZES)).play(3))
