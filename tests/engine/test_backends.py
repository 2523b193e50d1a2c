"""Every method in both backends: `fedgrid.engine.backends`, and `fedgrid.engine.aggregation`.

A run of a method in a backend is made once and read by several tests.
"""

from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

from conftest import (
    BACKENDS,
    HAND,
    PROTOCOL,
    QUIET,
    artifacts,
    assert_same,
    brief,
    given_noise,
    methods,
    simulate,
    some_slow,
    two_clients,
)
from fedgrid.checking.method import count_kept
from fedgrid.engine.aggregation import Kept, Running, start_sum
from fedgrid.engine.backends import _recorded, _steps
from fedgrid.engine.state import RunState
from fedgrid.federation import schedule
from fedgrid.method import Method, by_samples, weighted_sum
from fedgrid.models import Classifier
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered

every_method = pytest.mark.parametrize("name", QUIET)
# Methods whose steps read different things: these are recorded, for a second each, and the others
# exhaustively. `test_compiled.py` records whole steps of more.
RECORDED = ["fedavg", "fedrep", "moon", "scaffold"]
# Methods of each kind whose updates are added up as clients end: what they weigh, keep or change.
SUMMED = ["fedavg", "fedau", "fedbabu", "fednova", "fedpac", "fedrep", "feddyn", "sgdm"]
CODE = {  # options of the authors' code, whose steps read the rate or leave something to the next
    "pfedme": {"delta": 0.005, "lam": 4.0, "form": "code"},
    "apfl": {"adaptive": True, "mix": "outputs", "form": "code"},
    "fedpac": {"head_lr": 0.02},
    "feddyn": {"limit": 0.3},
    "moon": {"before": "later"},
}
STEPS, EPOCHS = {"local_unit": "steps"}, {"local_unit": "epochs", "local": 2}


def play(method: Method, name: str, backend: str, local: dict = EPOCHS) -> RunState:
    """The run after three rounds in which clients train for different numbers of steps."""
    return simulate(method, backend, needed=artifacts(name), **local).play(3)


@cache
def played(name: str, backend: str) -> RunState:
    """As `play`, of a method of the package, without records; to be read, not changed."""
    with patch.object(_steps, "Recorded", _recorded.unrecorded):
        return play(brief(name), name, backend)


@every_method
def test_stacked_equals_loop(name):
    assert_same(played(name, "loop"), played(name, "stacked"), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in QUIET if name != "knnper"])
def test_a_file_says_how_many_models_a_client_keeps(name):
    """kNN-Per keeps features of samples, which are larger than this network."""
    run = played(name, "loop")
    kept = max((count_kept(run.server, memory) for memory in run.memory.values()), default=0)
    assert kept < source.literal(f"methods.{name}", "MODELS_KEPT", 0) + 0.5


@pytest.mark.parametrize("name", ["fedavg", "fedcurv", "fednova", "moon", "scaffold"])
def test_stacked_equals_loop_where_all_take_as_many_steps(name):
    """Of the methods that read or keep something of the steps, and of FedAvg."""
    runs = [play(methods(name), name, backend, STEPS) for backend in BACKENDS]
    assert_same(*runs, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", some_slow(QUIET, RECORDED, pytest.mark.exhaustive))
def test_a_recorded_step_is_the_step(name):
    assert_same(play(brief(name), name, "stacked"), played(name, "stacked"))


@pytest.mark.parametrize("name", CODE)
def test_stacked_equals_loop_in_the_form_of_the_authors_code(name):
    runs = [play(brief(name, **CODE[name]), name, backend) for backend in BACKENDS]
    assert_same(*runs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("form", ["text", "code"])
def test_both_backends_agree_on_a_noisy_network_with_the_same_noise(form, monkeypatch):
    monkeypatch.setattr(torch, "rand_like", given_noise)
    runs = [play(methods("autohs", form=form), "autohs", backend) for backend in BACKENDS]
    assert_same(*runs, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_noisy_network_goes_on_with_the_same_noise(backend):
    """A new engine, as of a resumed run, records its steps anew."""
    whole, begun, resumed = (simulate(methods("autohs"), backend) for _ in range(3))
    begun.play(2)
    resumed.run = begun.run
    assert_same(whole.play(3), resumed.play(1))


# --- when the weights are known --------------------------------------------------------------


def waiting(method: Method) -> Method:
    """The same method, with weights that are known only when its clients have trained."""
    weigh = method.weigh or by_samples
    late = {"weigh": lambda cohort: weigh(cohort) + 0 * len(cohort.deltas)}
    return replace(method, **late, weigh_after_training=True)


def in_loop(name: str):
    """Parameters of a test, which is exhaustive for methods of no kind of their own."""
    return pytest.param(name, "loop", marks=[] if name in SUMMED else pytest.mark.exhaustive)


@pytest.mark.parametrize(
    ("name", "backend"),
    [*map(in_loop, registered("methods")), ("fedavg", "stacked"), ("fedau", "stacked")],
)
def test_weights_known_before_or_after_the_training_give_the_same(name, backend):
    other = play(waiting(brief(name)), name, backend)
    assert_same(played(name, backend), other, rtol=1e-9, atol=1e-12)


def test_a_round_holds_one_sum_if_the_weights_are_known_before_and_all_deltas_if_not():
    for method, kind in (
        (Method(), Running),
        (Method(weigh=lambda cohort: cohort.sizes), Running),
        (waiting(Method()), Kept),
        (Method(aggregate=weighted_sum), Kept),
        (Method(share=lambda cohort, update: {}), Kept),
        (Method(observe=lambda end: {}), Kept),
        (Method(share=lambda cohort, update: {}, uses_deltas=False), Running),
    ):
        made = simulate(method).engine
        work = schedule.work(np.array([0, 2]), made.federation.members, PROTOCOL, "test")
        cohort = made.cohort(made.start(7), work, 0.1)
        assert isinstance(start_sum(method, cohort, {}, [], []), kind)


class Counting(nn.Module):
    """A body whose buffer counts its calls in training, and changes what it gives."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x.flatten(1) * (1 + self.calls / 10)


@pytest.mark.usefixtures("recorded")
def test_a_buffer_that_is_changed_in_place_is_changed_once_a_step():
    """Also by the step that is recorded."""

    def build(seed):
        torch.manual_seed(seed)
        return Classifier(Counting(), 1, 2).double()

    runs = [
        simulate(Method(), backend, two_clients(), build, **HAND | {"participation": 1.0}).play(2)
        for backend in BACKENDS
    ]
    assert [float(run.server["body.calls"]) for run in runs] == [2, 2]
    assert_same(*runs, rtol=1e-12)
