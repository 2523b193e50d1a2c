"""Client contribution normalisation, and the methods of its tables: `methods/contribution.py`."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import BACKENDS, by_hand, differ, methods, simulate
from fedgrid.method import Aggregated, Cohort, Method, relative
from fedgrid.methods import contribution
from fedgrid.runtime.names import UsageError


def t(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def cohort(latents=(), noise: int = 0, **fields) -> Cohort:
    """A round of clients with these mean latents."""
    told = [{"latent": z, "finite": torch.tensor(True)} for z in latents]
    given = {"measured": told, "noise": noise, "round": 0, "clients": torch.arange(len(told))}
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | given | fields)


# --- by hand ---------------------------------------------------------------------------------


def test_the_factors_worked_out():
    # Two clients alike and one at a right angle. Sums of cosines: 2, 2, 1; with temperature 1/2
    # the softmax is of 4, 4 and 2.
    whole = 2 * math.exp(4) + math.exp(2)
    alike, apart = 1 - math.exp(4) / whole, 1 - math.exp(2) / whole
    found = contribution.factors(t([1, 0], [3, 0], [0, 2]), 0.5)
    torch.testing.assert_close(found, t(alike, alike, apart))
    # With sample shares 1/2, 1/4, 1/4 the weights are the products, divided by their sum.
    products = t(alike / 2, alike / 4, apart / 4)
    new = methods("contribution").reweigh(cohort(t([1, 0], [3, 0], [0, 2])), t(0.5, 0.25, 0.25))
    torch.testing.assert_close(new, products / products.sum())


def test_many_alike_clients_at_a_low_temperature_do_not_overflow():
    latents = torch.ones(1000, 4, dtype=torch.float64)
    found = contribution.factors(latents, 0.001)  # exp(1e6) without a maximum subtracted
    torch.testing.assert_close(found, torch.full((1000,), 1 - 1 / 1000, dtype=torch.float64))


def test_the_latent_of_one_linear_layer_is_the_mean_of_its_data():
    # `pixel` passes the pixels on: A's mean is 2, B's (1 + 1 + 4) / 3 = 2.
    seen = []
    watch = Method(observe=lambda end: seen.append(end.cohort.measured) or {})
    by_hand(Method(measure=methods("contribution").measure) | watch)
    assert [float(told["latent"]) for told in seen[0]] == [2, 2]


# --- the bound -------------------------------------------------------------------------------

sizes = st.integers(2, 40)


@given(
    clients=sizes,
    width=st.integers(1, 64),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 2**31),
    equal=st.booleans(),
    spread=st.floats(0, 5),
)
@settings(deadline=None)
def test_no_cohort_moves_the_weights_further_than_the_bound(
    clients, width, temperature, seed, equal, spread
):
    random = torch.Generator().manual_seed(seed)
    latents = 1 + spread * torch.randn(clients, width, generator=random, dtype=torch.float64)
    drawn = torch.rand(clients, generator=random, dtype=torch.float64) + 1e-3
    before = relative(torch.ones_like(drawn) if equal else drawn)
    after = methods("contribution", temperature=temperature).reweigh(cohort(latents), before)
    told = contribution.observed(Aggregated(None, before, after, {}, {}, None, None))
    assert told["weight_distance"] <= told["distance_bound"] + 1e-12
    assert float(told["distance_bound"]) == pytest.approx(float(before.max()))
    if equal:
        assert told["weight_distance"] <= 1 / clients + 1e-12
        assert told["distance_bound"] == pytest.approx(1 / clients)


def test_one_client_with_the_whole_softmax_reaches_the_bound():
    # Two pairs of opposite clients, and a fifth that resembles one pair: it has the largest sum.
    latents = t([1, 0.1], [1, -0.1], [1, 0], [-1, 3], [-1, -3])
    before = t(1, 1, 1, 1, 1) / 5
    after = methods("contribution", temperature=1e-5).reweigh(cohort(latents), before)
    told = contribution.observed(Aggregated(None, before, after, {}, {}, None, None))
    assert float(after[2]) == 0
    assert float(told["weight_distance"]) == pytest.approx(1 / 5)


# --- the placebo -----------------------------------------------------------------------------


def test_the_placebo_gives_every_client_the_factor_of_another():
    latents = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own, equal = contribution.factors(latents, 0.5), torch.ones(8, dtype=torch.float64) / 8
    made = methods("contribution", shuffled=True)
    rounds = [made.reweigh(cohort(latents, noise), equal) for noise in (1, 1, *range(2, 20))]
    for new in rounds:
        torch.testing.assert_close(new.sort().values, relative(own).sort().values)
        assert not torch.isclose(new, relative(own), rtol=1e-9).any()
    assert torch.equal(rounds[0], rounds[1])
    assert not torch.equal(rounds[1], rounds[2])


# --- averaged and forgotten optimisers -------------------------------------------------------


# A bias before BatchNorm has no gradient but rounding, which Adam's usual epsilon makes visible.
@pytest.mark.parametrize("backend", BACKENDS)
def test_averaged_momentum_has_the_clients_weights_not_the_factors_of_their_changes(backend):
    # After one step the buffers are the gradients: -1 of A, 1 of B, by samples -1/4 + 3/4.
    scaled = Method(scale=lambda cohort, weights: weights * t(3, 1))
    run = by_hand(methods("sgdm") | scaled, backend, momentum=0.9)
    assert float(run.shared["optimiser"]["momentum"]["head.weight"][0, 0]) == pytest.approx(0.5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_private_entries_keep_their_momentum_and_do_not_send_it(backend):
    kept = methods("sgdm") | Method(private=("head.weight",))
    run = by_hand(kept, backend, momentum=0.9)
    assert run.shared["optimiser"]["momentum"].keys() == {"head.bias"}
    own = [float(run.memory[k]["optimiser"]["momentum"]["head.weight"][0, 0]) for k in (0, 1)]
    assert own == pytest.approx([-1, 1])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fields", [{"momentum": 0.9}, {"optimiser": "adam"}])
def test_whoever_keeps_all_entries_trains_alone(fields, backend):
    # Four rounds of one step are then one round of four steps.
    alone = Method(average_optimiser=True, private=("head.",))
    short = by_hand(alone, backend, rounds=4, **fields)
    whole = by_hand(alone, backend, local=4, **fields)
    for client in (0, 1):
        torch.testing.assert_close(short.memory[client]["private"], whole.memory[client]["private"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_client_forgets_is_its_private_entries_momentum_too(backend):
    made = Method(private=("head.weight",), forgets=True)
    simulation = simulate(made, backend, participation=1.0, optimiser_state="kept")
    engine, run = simulation.engine, simulation.play()
    work = engine.plan(run)
    cohort = engine.cohort(run, work, lr=0.1)
    for before, now in zip(cohort.before, engine.send(cohort, work.clients), strict=True):
        then, after = (memory["optimiser"]["momentum"] for memory in (before, now))
        assert not after["head.weight"].any()
        assert all(after[name] is then[name] for name in then.keys() - {"head.weight"})
    assert any(memory["optimiser"]["momentum"]["head.weight"].any() for memory in cohort.before)


# --- similarity ------------------------------------------------------------------------------


def test_similarity_is_the_cosine_of_local_and_new_global_model():
    # From zero weights, after one step: A's model is along (-1, -1/2), B's along (1, 1/2); the new
    # model is a quarter of A's and three quarters of B's, which is along B's.
    logged = by_hand(methods("similarity")).logged
    assert float(logged["similarity0"]) == pytest.approx(-1)
    assert float(logged["similarity1"]) == pytest.approx(1)


# --- bad input -------------------------------------------------------------------------------


def test_a_latent_that_is_not_finite_is_one_sentence():
    with pytest.raises(UsageError, match="in round 1 the mean latent of client 1 is not finite"):
        methods("contribution").reweigh(cohort(t([1, 0], [math.inf, 0])), t(0.5, 0.5))


def test_a_model_that_is_not_finite_either_has_diverged_and_goes_on():
    told = {"latent": t(math.nan, 0), "finite": torch.tensor(False)}
    lost = replace(cohort(t([1, 0], [0, 1])), measured=[told, told])
    assert methods("contribution").reweigh(lost, t(0.5, 0.5)).isnan().all()


def test_other_latents_are_those_of_the_servers_model():
    runs = [simulate(methods("contribution", latent=of)).play(3) for of in ("local", "server")]
    assert differ(*runs)
