"""Methods that correct drift or step sizes, worked out by hand: two clients, one step a round."""

import pytest
import torch

from conftest import by_hand, methods
from fedgrid.method import Cohort, effective_steps

LR = 0.1
PIXELS = {0: [2.0], 1: [1.0, 1.0, 4.0]}  # of client A, labelled 0, and of B, labelled 1
SHARE = {0: 0.25, 1: 0.75}


def t(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def gradient(client: int, weight: float, bias: float) -> torch.Tensor:
    """Of weight and bias of class 0, whose negatives class 1 has."""
    x = t(*PIXELS[client])
    error = torch.sigmoid(2 * (weight * x + bias)) - float(client == 0)
    return torch.stack([(error * x).mean(), error.mean()])


def of_class_0(state: dict) -> torch.Tensor:
    """Weight and bias of class 0."""
    return torch.stack([state["head.weight"][0, 0], state["head.bias"][0]])


FIRST = {k: gradient(k, 0, 0) for k in (0, 1)}
AFTER_ONE = -LR * sum(SHARE[k] * FIRST[k] for k in (0, 1))  # the server, for FedAvg's weights
SECOND = {k: gradient(k, *AFTER_ONE) for k in (0, 1)}


def test_the_hand_is_fedavgs():
    expected = AFTER_ONE - LR * sum(SHARE[k] * SECOND[k] for k in (0, 1))
    torch.testing.assert_close(of_class_0(by_hand(methods("fedavg"), rounds=2).server), expected)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_scaffold_steps_along_everybodys_gradient(backend):
    one = by_hand(methods("scaffold"), backend)
    for k in (0, 1):
        torch.testing.assert_close(of_class_0(one.memory[k]["scaffold"]), FIRST[k])
    everybody = (FIRST[0] + FIRST[1]) / 2
    torch.testing.assert_close(of_class_0(one.shared["scaffold"]), everybody)
    two = by_hand(methods("scaffold"), backend, rounds=2)
    steps = {k: SECOND[k] - FIRST[k] + everybody for k in (0, 1)}
    expected = AFTER_ONE - LR * sum(SHARE[k] * steps[k] for k in (0, 1))
    torch.testing.assert_close(of_class_0(two.server), expected)
    for k in (0, 1):  # c_k - c + (w - w_k) / lr is the gradient again
        torch.testing.assert_close(of_class_0(two.memory[k]["scaffold"]), SECOND[k])


@pytest.mark.parametrize(("division", "factor"), [("effective", 1 + 1.9), ("steps", 2)])
def test_scaffold_counts_steps_with_momentum_or_without(division, factor):
    # With momentum 0.9 two steps go along g1, and then along 0.9 g1 + g2.
    run = by_hand(methods("scaffold", division=division), momentum=0.9, local=2)
    way = FIRST[0] + 0.9 * FIRST[0] + gradient(0, *(-LR * FIRST[0]))
    torch.testing.assert_close(of_class_0(run.memory[0]["scaffold"]), way / factor)


def test_effective_steps_are_the_running_factors_sum():
    assert effective_steps(1, 0.5) == 1
    assert effective_steps(3, 0.5) == 1 + 1.5 + 1.75
    assert effective_steps(3, 0.0) == 3


def cohort(**fields) -> Cohort:
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | fields)


@pytest.mark.parametrize(("momentum", "steps"), [(0.0, (1, 3)), (0.5, (1, 4.25))])
def test_fednova_divides_by_the_steps_and_multiplies_by_their_mean(momentum, steps):
    mean = 0.25 * steps[0] + 0.75 * steps[1]
    round_ = cohort(sizes=t(1, 3), steps=torch.tensor([1, 3]), momentum=momentum)
    found = methods("fednova").scale(round_, t(0.25, 0.75))
    torch.testing.assert_close(found, t(mean * 0.25 / steps[0], mean * 0.75 / steps[1]))


def test_fednova_is_fedavg_where_all_take_as_many_steps():
    runs = [by_hand(methods(name), rounds=2, momentum=0.9) for name in ("fednova", "fedavg")]
    torch.testing.assert_close(*(run.server for run in runs))


def test_fednovas_correction_subtracts_a_clients_own_mean_gradient():
    run = by_hand(methods("fednova", ccvr=True), rounds=2)
    steps = {k: SECOND[k] - FIRST[k] for k in (0, 1)}
    expected = AFTER_ONE - LR * sum(SHARE[k] * steps[k] for k in (0, 1))
    torch.testing.assert_close(of_class_0(run.server), expected)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_fedcurv_pulls_to_the_others_models_by_their_curvature(backend):
    local = {k: -LR * FIRST[k] for k in (0, 1)}
    curvature = {k: gradient(k, *local[k]).square() for k in (0, 1)}
    one = by_hand(methods("fedcurv"), backend)
    for k in (0, 1):
        torch.testing.assert_close(of_class_0(one.memory[k]["fedcurv"]["u"]), curvature[k])
    two = by_hand(methods("fedcurv", penalty=0.5), backend, rounds=2)
    steps = {k: SECOND[k] + 0.5 * 2 * curvature[1 - k] * (AFTER_ONE - local[1 - k]) for k in (0, 1)}
    expected = AFTER_ONE - LR * sum(SHARE[k] * steps[k] for k in (0, 1))
    torch.testing.assert_close(of_class_0(two.server), expected)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_fedcurv_in_place_also_misses_those_before(backend):
    local = {k: -LR * FIRST[k] for k in (0, 1)}
    two = by_hand(methods("fedcurv", subtract="in_place"), backend, rounds=2)
    pull = 2 * gradient(1, *local[1]).square() * (AFTER_ONE - local[1])  # nobody is left for B
    expected = AFTER_ONE - LR * (SHARE[0] * (SECOND[0] + pull) + SHARE[1] * SECOND[1])
    torch.testing.assert_close(of_class_0(two.server), expected)
    assert two.memory[0].keys() == {"fedcurv"}  # what is sent is not kept


def squared(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The squares of the gradient of a batch of client B."""
    error = torch.sigmoid(2 * (state[0] * x + state[1]))
    return torch.stack([(error * x).mean(), error.mean()]).square()


@pytest.mark.parametrize(("smallest", "taken"), [(1, 2), (2, 1)])
def test_fedcurv_squares_the_gradients_of_batches_that_are_trained_on(smallest, taken):
    local = -LR * FIRST[1]
    about = {"batch": 2, "local_unit": "epochs", "local": 1, "smallest_batch": smallest}
    one = by_hand(methods("fedcurv"), **about)
    moved = of_class_0(one.memory[1]["fedcurv"]["uw"]) / of_class_0(one.memory[1]["fedcurv"]["u"])
    found = of_class_0(one.memory[1]["fedcurv"]["u"])
    orders = [(t(*x[:2]), t(*x[2:])) for x in ([1.0, 1.0, 4.0], [1.0, 4.0, 1.0])]  # shuffled
    possible = [sum(squared(moved, x) for x in order[:taken]) / taken for order in orders]
    assert any(torch.allclose(found, one) for one in possible)
    assert not torch.allclose(local, moved)


def test_fedcurv_stops_after_more_samples_than_it_is_asked_for():
    about = {"batch": 1, "local_unit": "epochs", "local": 1, "smallest_batch": 1}
    for size, possible in ((1, [(1, 1), (1, 4)]), (0, [(1, 1, 4)]), (2, [(1, 1, 4)])):
        own = by_hand(methods("fedcurv", size=size), **about).memory[1]["fedcurv"]
        moved = of_class_0(own["uw"]) / of_class_0(own["u"])
        means = [sum(squared(moved, t(float(x))) for x in xs) / len(xs) for xs in possible]
        assert any(torch.allclose(of_class_0(own["u"]), mean) for mean in means)


@pytest.mark.parametrize(("damped", "scale"), [(False, 1.0), (True, 0.3)])
def test_fedavgm_keeps_rolling(damped, scale):
    one = scale * AFTER_ONE  # the first step
    update = -LR * sum(SHARE[k] * gradient(k, *one) for k in (0, 1))
    expected = one + 0.7 * one + scale * update
    run = by_hand(methods("fedavgm", beta=0.7, damped=damped), rounds=2)
    torch.testing.assert_close(of_class_0(run.server), expected)
