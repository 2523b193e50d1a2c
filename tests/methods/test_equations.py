"""Equations of methods worked out by hand: on numbers, or on two clients with one step a round."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import SIZES, by_hand, make_step, methods, simulate
from fedgrid.encoders import guided
from fedgrid.method import Cohort, Method, Start, effective_steps


def t(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def cohort(**fields) -> Cohort:
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | fields)


# --- FedAvg, FedProx ---------------------------------------------------------------------------


def test_fedavg_worked_out_by_hand():
    # The deltas of class 0 are -0.1 and 0.1 (weight), -0.05 and 0.05 (bias); FedAvg's weights 1/4
    # and 3/4: the weight's update is -0.025 + 0.075 = 0.05 and the bias's 0.025.
    server = by_hand(methods("fedavg")).server
    torch.testing.assert_close(server["head.weight"], t([-0.05], [0.05]))
    torch.testing.assert_close(server["head.bias"], t(-0.025, 0.025))


def test_fedprox_pulls_back_to_the_server():
    # Two steps of client A alone, from weight 0 and bias 0 of class 0. The first step is FedAvg's,
    # for the distance is 0: weight 0.1, bias 0.05. Then z_0 - z_1 = 2 (2 0.1 + 0.05) = 0.5, the
    # gradient is (p - 1) x plus mu (w - 0), for the bias (p - 1) plus mu (b - 0).
    p = 1 / (1 + math.exp(-0.5))
    weight = 0.1 - 0.1 * ((p - 1) * 2 + 3 * 0.1)
    bias = 0.05 - 0.1 * ((p - 1) + 3 * 0.05)
    only_a = Method(weigh=lambda cohort: t(1, 0))
    server = by_hand(methods("fedprox", mu=3.0) | only_a, local=2).server
    torch.testing.assert_close(server["head.weight"][0, 0], t(weight)[0])
    torch.testing.assert_close(server["head.bias"][0], t(bias)[0])


# --- MOON ------------------------------------------------------------------------------------


def contrast(number=0, **keywords) -> torch.Tensor:
    """MOON's penalty in a round for two samples."""
    step = make_step(
        round=torch.tensor(number),
        server={"z": t([2, 0], [4, 3])},
        memory={"previous": {"z": t([0, 5], [-3, -4])}, "pushes": torch.tensor(1.0)},
        features=t([1, 0], [3, 4]),
        forward=lambda state, x: (state["z"], None),
    )
    return methods("moon", **keywords).penalty(step)


def test_moons_contrast_written_out():
    # Sample 1: cosines 1 and 0; sample 2: 24/25 and -1. With tau = 1/2:
    # -log(e^2 / (e^2 + e^0)) = log(1 + e^-2), -log(e^1.92 / (e^1.92 + e^-2)) = log(1 + e^-3.92).
    first, second = math.log1p(math.exp(-2)), math.log1p(math.exp(-3.92))
    found = contrast(mu=3.0, tau=0.5)
    torch.testing.assert_close(found, t(3 * (first + second) / 2)[0])


def test_moon_pushes_from_random_models_from_the_second_round_on():
    assert contrast(before="later") == 0
    found, usual = (contrast(number=1, before=b) for b in ("later", "random"))
    assert found == usual > 0
    start = simulate(methods("moon")).engine.population.start
    found, usual = (methods("moon", before=b).memory(start, 1) for b in ("later", "random"))
    assert found["pushes"] == usual["pushes"] == 1
    assert torch.equal(found["previous"]["head.weight"], usual["previous"]["head.weight"])


def test_moons_random_models_are_the_clients_own():
    engine = simulate(methods("moon", before="random")).engine
    memory = engine.method.memory
    start = replace(engine.population.start, server={})
    previous = [memory(start, k)["previous"]["head.weight"] for k in (0, 1, 0)]
    assert torch.equal(previous[0], previous[2])
    assert not torch.equal(previous[0], previous[1])


def test_moons_projection_is_two_layers_under_the_classifier():
    model = simulate(methods("moon", projection=5)).engine.architecture.build(0)
    features, logits = model(torch.zeros(2, 1, 6, 6).double())
    shapes = {name: tuple(w.shape) for name, w in model.named_parameters()}
    assert (features.shape, logits.shape) == ((2, 5), (2, 3))
    assert shapes["body.1.0.weight"] == (4, 4)
    assert shapes["body.1.2.weight"] == (5, 4)
    assert shapes["head.weight"] == (3, 5)


# --- FedDecorr -------------------------------------------------------------------------------


def test_feddecorr_in_the_papers_scale():
    # The squared Frobenius norm of the correlation matrix, its diagonal too, over D^2.
    features = t([1, 2, 0], [3, 1, 1], [2, 5, 1], [0, 1, 4])
    expected = 0.1 * (np.corrcoef(features.T) ** 2).sum() / features.shape[1] ** 2
    penalty = methods("feddecorr", beta=0.1, scale="paper").penalty
    found = penalty(make_step(features=features))
    torch.testing.assert_close(found, t(expected)[0], rtol=1e-7, atol=0)
    assert penalty(make_step(features=features[:1])) == 0


# --- FedAU -----------------------------------------------------------------------------------

# Four clients, cutoff 3. `wait` counts rounds since the last participation, or since a cut; an
# interval of wait + 1 ends when the client takes part, or when it reaches 3.
#
#   round  takes part   ends in this round          intervals so far (clients 0, 1, 2, 3)
#     0    0, 1         0: 1, 1: 1                  [1]        [1]      []      []
#     1    0            0: 1                        [1,1]      [1]      []      []
#     2    2            2: 3, 3: 3 (cut)            [1,1]      [1]      [3]     [3]
#     3    1, 2         1: 3, 2: 1                  [1,1]      [1,3]    [3,1]   [3]
#     4    0, 3         0: 3, 3: 2                  [1,1,3]    [1,3]    [3,1]   [3,2]
#     5    0, 1, 2, 3   0: 1, 1: 2, 2: 2, 3: 1
#
# A round's weights are the means of the intervals recorded before it (1 if there are none), over
# the population of 4:
#
#     0    1, 1    1    1    2    1    3    1, 3 (mean of [1], of [3])    4    1, 3
#     5    5/3, 2, 2, 5/2
TAKING_PART = [[0, 1], [0], [2], [1, 2], [0, 3], [0, 1, 2, 3]]
EXPECTED = [[1, 1], [1], [1], [1, 3], [1, 3], [5 / 3, 2, 2, 5 / 2]]


def test_fedaus_estimator_worked_out_by_hand():
    fedau, found = methods("fedau", cutoff=3), []
    shared = fedau.shared(Start({"w": t(0)}, 4, t(0), t(0), 1, 4, None))
    for clients in TAKING_PART:
        seen = cohort(clients=torch.tensor(clients), population=4, shared=shared)
        found.append((fedau.weigh(seen) * 4).tolist())
        shared = fedau.share(seen, {})
    for weights, expected in zip(found, EXPECTED, strict=True):
        assert weights == pytest.approx(expected)


# --- FedSLS and FedSL ------------------------------------------------------------------------

# Contributions (targets, readings, roots, clients, layers): zero but for one reading at a time.
# Layer 3 is beside the main path.
MAIN = torch.tensor([True, True, False, True])
LAYERS = t([8, 4, 100, 4], [0, 8, 10, 16], [5, 5, 5, 5])


def saliency_weights(clients, where=(0, 0, 0), **keywords) -> list[float]:
    contributions = torch.zeros(3, 2, 2, 3, 4).double()
    contributions[where] = LAYERS
    needed = {"saliency": {"contributions": contributions, "main": MAIN}}
    seen = cohort(clients=torch.tensor(clients), artifacts=needed)
    return methods("fedsls", **keywords).weigh(seen).tolist()


def test_fedsls_weights_worked_out_by_hand():
    # tau = 1/2, main path: client 0: 8 + 4/2 + 4/4 = 11; client 1: 0 + 8/2 + 16/4 = 8.
    assert saliency_weights([0, 1]) == pytest.approx([11 / 19, 8 / 19])


def test_fedsls_counts_the_side_paths_too_if_asked():
    # Client 0: 8 + 4/2 + 100/4 + 4/8 = 35.5; client 1: 0 + 8/2 + 10/4 + 16/8 = 8.5.
    assert saliency_weights([0, 1], layers="all") == pytest.approx([35.5 / 44, 8.5 / 44])


@pytest.mark.parametrize(
    ("keywords", "where"),
    [
        ({"target": "max"}, (1, 0, 0)),
        ({"target": "sum"}, (2, 0, 0)),
        ({"reading": "B"}, (0, 1, 0)),
        ({"extra_root": True}, (0, 0, 1)),
        ({"target": "sum", "reading": "B", "extra_root": True}, (2, 1, 1)),
    ],
)
def test_fedsls_takes_the_reading_that_was_asked_for(keywords, where):
    assert saliency_weights([0, 1], where, **keywords) == pytest.approx([11 / 19, 8 / 19])


@pytest.mark.parametrize(("f", "factor"), [(2, 0), (4, 1), (8, 2)])
@pytest.mark.parametrize(("name", "row"), [("client", 0), ("pooled", 1), ("area", 2)])
def test_fedsl_takes_the_encoder_and_the_factor_that_were_asked_for(f, factor, name, row):
    norms = torch.zeros(3, 3, 3).double()
    norms[row, factor] = t(6, 1, 2)
    seen = cohort(clients=torch.tensor([0, 2]), artifacts={"latents": {"norms": norms}})
    assert methods("fedsl", f=f, encoder=name).weigh(seen).tolist() == [0.75, 0.25]


def test_dynamic_fedsls_encodes_the_model_that_the_server_sent():
    # In the first round that is the initial model: as if it had been encoded beforehand.
    simulation = simulate(methods("fedsls_dynamic"))
    engine, server = simulation.engine, simulation.run.server
    found = [
        engine.samples.total(
            k, lambda x, y: guided.contributions(engine.architecture.empty, server, x, y)
        )
        for k in range(len(SIZES))
    ]
    stacked = torch.stack([guided.stack(one) for one in found], dim=-2)
    needed = {"saliency": {"contributions": stacked, "main": torch.tensor([True])}}
    static = simulate(methods("fedsls"), needed=needed).play()
    torch.testing.assert_close(simulation.play().server, static.server)


# --- SCAFFOLD, FedNova, FedCurv ----------------------------------------------------------------

LR = 0.1
PIXELS = {0: [2.0], 1: [1.0, 1.0, 4.0]}  # of client A, labelled 0, and of B, labelled 1
SHARE = {0: 0.25, 1: 0.75}


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


def test_fednovas_correction_subtracts_a_clients_own_mean_gradient():
    run = by_hand(methods("fednova", ccvr=True), rounds=2)
    steps = {k: SECOND[k] - FIRST[k] for k in (0, 1)}
    expected = AFTER_ONE - LR * sum(SHARE[k] * steps[k] for k in (0, 1))
    torch.testing.assert_close(of_class_0(run.server), expected)


def test_fedcurv_in_place_also_misses_those_before():
    local = {k: -LR * FIRST[k] for k in (0, 1)}
    two = by_hand(methods("fedcurv", subtract="in_place"), rounds=2)
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
