"""Who gets which samples: `fedgrid partition`."""

from functools import partial
from hashlib import sha256
from itertools import product

import numpy as np
import pytest

from fedgrid.federation.members import Partition, fits
from fedgrid.partitions import (
    classes,
    dirichlet,
    iid,
    match_name,
    odd,
    parse_name,
    shards,
    write_label,
)
from fedgrid.partitions._restarts import AT_ONCE, Draws
from fedgrid.partitions.dirichlet import RECIPES
from fedgrid.runtime.names import UsageError

recipes = pytest.mark.parametrize("recipe", RECIPES)
LABELS = np.random.default_rng(0).permutation(np.arange(2000) % 10)


def made(recipe: str, alpha: float = 0.1, *names, clients: int = 20, labels=LABELS):
    return dirichlet.draw(labels, 10, clients, recipe, alpha, *(names or ("digits", 0)))


def same(one: Partition, other: Partition) -> bool:
    return all(map(np.array_equal, one.members, other.members))


# --- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        *((name, "dir0.1") for name in ("dir0.10", "dir1e-1", "dir.1", "DIR0.1", "dir+0.1")),
        *((name, "dir0.1") for name in ("dir\u0660.\u0661", "dir00.1", "dir0.1000000000000000055")),
        *((name, "dir1") for name in ("dir01", "dir1.", "dir1.0")),
        *((name, "shards2") for name in ("shards02", "shards2.0", "Shards2", "shards+2")),
        *[("odd02", "odd2"), ("classes05", "classes5"), ("IID", "iid"), ("Writers", "writers")],
    ],
)
def test_a_name_has_one_spelling(name, spelled):
    with pytest.raises(UsageError, match=f"write {spelled}$"):
        parse_name(name)
    assert match_name(name) is None
    assert match_name(spelled)


@pytest.mark.parametrize(
    ("name", "known", "label"),
    [
        ("dir0.00001", ("dirichlet", "0.00001"), "alpha=0.00001"),
        ("shards10", ("shards", "10"), "s=10"),
        ("classes20", ("classes", "20"), "20 classes"),
        ("odd2", ("odd", "2"), "2 odd classes"),
        ("writers", ("writers", ""), "writers"),
    ],
)
def test_a_name_of_one_spelling_is_known(name, known, label):
    assert parse_name(name) == known
    assert write_label(name) == label


@pytest.mark.parametrize("name", ["classes0", "classes", "classes-5", "classes2.5", "dir", "dir0"])
def test_a_name_of_no_kind_is_refused(name):
    with pytest.raises(UsageError, match="no partition is called"):
        parse_name(name)


# --- every recipe ----------------------------------------------------------------------------


@recipes
def test_every_sample_has_exactly_one_client_and_counts_are_those_of_the_members(recipe):
    for alpha, clients in product((0.05, 0.1, 0.5, 100.0), (1, 3, 20)):
        found = made(recipe, alpha, clients=clients)
        assert len(found.members) == clients
        assert fits(found, LABELS, 10)
        assert all(ids.tolist() == sorted(ids) for ids in found.members)
    uneven = np.repeat(np.arange(10), [1, 2, 3, 5, 8, 100, 200, 300, 0, 600])
    assert fits(made(recipe, 0.1, labels=uneven), uneven, 10)
    # Among the seeds are some that draw zeros for a class in all three mixtures.
    for seed in range(12):
        found = made(recipe, 0.01, "x", seed, clients=3, labels=LABELS[:1442])
        assert fits(found, LABELS[:1442], 10)
        assert (found.counts >= 0).all()


DRAWS = {recipe: partial(made, recipe, 0.1) for recipe in RECIPES}
DRAWS |= {
    "classes": lambda *names: classes.draw(LABELS, 10, 20, "fedntd", "5", *names),
    "iid": lambda *names: iid.draw(LABELS, 10, 3, "", "", *names),
    "odd": lambda *names: odd.draw(LABELS, 10, 3, "fedntd", "2", *names),
    "shards": lambda *names: shards.draw(LABELS, 10, 20, "balanced", 2, *names),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_a_partition_depends_on_the_names_alone(kind):
    draw = DRAWS[kind]
    assert same(draw("digits", 0), draw("digits", 0))
    assert not same(draw("digits", 0), draw("digits", 1))
    assert not same(draw("digits", 0), draw("mnist", 0))


def test_iid_deals_out_all_samples_equally():
    found = iid.draw(LABELS[:11], 10, 3, "", "", "x", 0)
    assert sorted(map(len, found.members)) == [3, 4, 4]
    assert fits(found, LABELS[:11], 10)
    with pytest.raises(UsageError, match="12 clients are more than the 11"):
        iid.draw(LABELS[:11], 10, 12, "", "", "x", 0)


def test_a_fixed_recipe_is_the_same_for_all_seeds():
    one, other = (dirichlet.draw(LABELS, 10, 20, "fedntd", 0.5, n) for n in range(2))
    assert same(one, other)
    assert one.counts.sum(1).min() >= 10
    one, other = (shards.draw(LABELS, 10, 20, "fedntd", 2, "digits", n) for n in range(2))
    assert same(one, other)
    assert fits(one, LABELS, 10)
    assert (one.counts > 0).sum(1).max() == 2


@recipes
def test_samples_of_a_class_are_dealt_out_at_random(recipe):
    # Clients in order must not get samples in order.
    found = made(recipe, 100.0, clients=2)
    sevens = np.flatnonzero(LABELS == 7)
    first = np.isin(sevens, found.members[0])
    assert 0.3 < first[: len(sevens) // 2].mean() < 0.7


def test_clientwise_sizes_are_close_to_each_other():
    # METHODS of FedAU on 50,000 labels and 100 clients: 337 to 919 at alpha 0.05.
    labels = np.arange(50_000) % 10
    sizes = made("clientwise", 0.05, clients=100, labels=labels).counts.sum(1)
    assert sizes.std() < 200 < sizes.min()


@recipes
def test_mixtures_have_dirichlets_concentration(recipe):
    # With sum_c p_c^2 of the mixture p of a client: 1 for one class, 1/10 for all alike.
    def concentration(alpha):
        counts = made(recipe, alpha, clients=100, labels=np.arange(50_000) % 10).counts
        shares = counts / counts.sum(1, keepdims=True)
        return np.average((shares**2).sum(1), weights=counts.sum(1))

    assert concentration(1000.0) == pytest.approx(0.1, abs=0.01)
    assert concentration(0.1) > 0.4


@pytest.mark.parametrize(
    ("recipe", "least"), [("classwise", 2), ("balanced", 10), ("clientwise", 1)]
)
def test_too_few_samples_are_refused(recipe, least):
    labels = np.arange(20 * least - 1) % 10
    with pytest.raises(UsageError, match=f"{20 * least - 1} samples are too few for 20 clients"):
        made(recipe, 100.0, labels=labels)


def test_balanced_gives_up_in_the_end(monkeypatch):
    monkeypatch.setattr(dirichlet, "RESTARTS", 1000)
    with pytest.raises(UsageError, match=r"dir0.1 over 47 clients was found: in 1024 draws"):
        made("balanced", 0.1, clients=47)


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean classwise"):
        made("claswise")


# --- one odd client --------------------------------------------------------------------------


def test_the_odd_client_has_the_last_classes_and_the_others_share_the_rest():
    found = odd.draw(LABELS, 10, 4, "classwise", "2", "digits", 0)
    assert np.array_equal(np.sort(np.concatenate(found.members)), np.arange(len(LABELS)))
    assert found.counts[3].tolist() == [0] * 8 + [200, 200]
    assert found.counts[:3].sum(1).tolist() == [534, 533, 533]  # 1,600 images over three
    assert set(found.counts[:3, :8].flat) == {66, 67}
    assert not found.counts[:3, 8:].any()
    zeros = np.flatnonzero(LABELS == 0)
    first = np.isin(zeros, found.members[0])
    assert 0.2 < first[:100].mean() < 0.5  # at random


@pytest.mark.parametrize(("number", "clients"), [("10", 3), ("2", 1)])
def test_an_odd_partition_that_leaves_nothing_is_refused(number, clients):
    with pytest.raises(UsageError, match=f"odd{number} over {clients} clients and 10 classes is"):
        odd.draw(LABELS, 10, clients, "classwise", number)
    assert odd.draw(LABELS, 10, 2, "classwise", "9").counts[0].tolist() == [200] + [0] * 9


# --- one recipe each -------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5])
def test_classwise_gives_everybody_at_least_two(alpha):
    assert made("classwise", alpha, clients=100).counts.sum(1).min() >= 2
    assert made("classwise", alpha, clients=1000).counts.sum(1).tolist() == [2] * 1000


def test_balanced_restarts_side_by_side_and_leaves_nobody_with_fewer_than_ten(monkeypatch):
    """One after the other its thousands of restarts would take minutes."""
    cut, shapes = dirichlet.cut, []
    monkeypatch.setattr(
        dirichlet, "cut", lambda shares, sizes: shapes.append(shares.shape) or cut(shares, sizes)
    )
    found = made("balanced", 0.05, clients=100, labels=np.arange(50_000) % 10)
    assert set(shapes) == {(AT_ONCE, 100)}
    assert len(shapes) < 10 * 100  # of ten classes each
    assert found.counts.sum(1).min() >= 10
    assert sorted(np.concatenate(found.members)) == list(range(50_000))
    assert sha256(found.counts.tobytes()).hexdigest()[:12] == "28e2114fbabb"
    assert sha256(np.concatenate(found.members).tobytes()).hexdigest()[:12] == "b1d96be6a610"


def test_balanced_gives_no_more_to_clients_with_their_fair_share():
    # A client at its share before a class gets none of it; but the last takes what rounding left.
    counts = made("balanced", 0.1).counts
    before = counts.cumsum(1) - counts
    assert (counts[:-1][before[:-1] >= 100] == 0).all()


def test_cut_rounds_down_cumulatively():
    # Cumulative shares 0.25, 0.5, 1 of 10: ends 2, 5, 10. Of 3: 0, 1, 3.
    shares = np.array([[1, 1, 2], [1, 1, 2]])
    assert dirichlet.cut(shares, np.array([10, 3])).tolist() == [[2, 3, 5], [0, 1, 2]]


# --- restarts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "alpha", "clients"),
    [("balanced", 0.01, 50), ("balanced", 0.1, 125), ("fedntd", 0.02, 50)],
)
def test_hopeless_draws_are_refused_after_a_few(recipe, alpha, clients):
    """2,000 samples: 50 clients have 40 each on average, 125 have 16."""
    says = rf"over {clients} clients was found: in 256 draws, \d+\.?\d* clients on average got"
    with pytest.raises(UsageError, match=says):
        made(recipe, alpha, clients=clients)


def test_whether_draws_are_hopeless_is_asked_of_mean_and_variance():
    def hopeless(*small: int) -> bool:
        draws = Draws(0.1, 50, allowed=300_000)
        draws.add(np.repeat(small, 10_000))
        return draws.are_hopeless()

    # One success in 1,000 times 300,000 draws is exp(-19.5); of a Poisson distribution, exp(-mean).
    assert hopeless(16, 24, 20, 20, 15, 25, 14, 26)  # the variance is 15.5
    assert not hopeless(14, 22, 18, 18, 11, 25, 10, 26, 9, 27)  # mean 18, variance 40
    assert not hopeless(1)  # a variance of 0 says little: one draw with 0 is added
    assert hopeless(30)


@pytest.mark.parametrize(("clients", "alpha", "classes"), [(14, 0.04, 7), (4, 0.005, 2)])
def test_draws_that_succeed_late_are_not_hopeless(clients, alpha, classes):
    """One draw in a thousand or less succeeds; whoever draws must not stop before that."""
    totals, late = np.bincount(np.arange(30 * clients) % classes), 0
    for seed in range(4):
        rng, draws = np.random.default_rng(seed), Draws(alpha, clients, 300_000)
        while (small := dirichlet.draw_many(totals, clients, alpha, rng, kept=0)[0]).all():
            draws.add(small)
            assert not draws.are_hopeless()
        late += draws.made > AT_ONCE
    assert late > 1


def test_balanced_does_not_depend_on_the_parts_of_its_draws(monkeypatch):
    """The counts of a draw are made again, in parts, when it is the first good one of many."""
    for seed in range(6):
        totals, found = np.random.default_rng(seed).integers(55, 65, 6), []
        for rows in (1, 50, AT_ONCE):
            monkeypatch.setattr(dirichlet, "CELLS", 12 * rows)
            rng = np.random.default_rng(seed)
            counts = dirichlet.balanced(totals, 12, 0.12, rng)
            assert (counts.sum(0) == totals).all()
            assert counts.sum(1).min() >= 10
            found.append((counts.tolist(), rng.random()))
        assert found[0] == found[1] == found[2]


# --- many clients ----------------------------------------------------------------------------


def classwise_by_sums(totals, clients, alpha, rng) -> np.ndarray:
    """The counts of `classwise`, with a sum over all clients for each sample that is given."""
    given = np.zeros((clients, len(totals)), np.int64)
    for client in np.tile(np.arange(clients), 2):
        left = np.flatnonzero(given.sum(0) < totals)
        given[client, rng.choice(left)] += 1
    shares = rng.dirichlet(np.full(clients, alpha), len(totals))
    return given + dirichlet.cut(shares, totals - given.sum(0)).T


@pytest.mark.parametrize("seed", range(20))
def test_classwise_draws_as_with_sums_over_all_clients(seed):
    rng = np.random.default_rng(seed)
    totals = rng.multinomial(rng.integers(80, 200), rng.dirichlet(np.ones(rng.integers(1, 9))))
    rngs = [np.random.default_rng(seed) for _ in range(2)]
    drawn = (classwise_by_sums, dirichlet.classwise)
    one, other = (draw(totals, 40, 0.3, rng) for draw, rng in zip(drawn, rngs, strict=True))
    np.testing.assert_array_equal(one, other)
    assert rngs[0].random() == rngs[1].random()
