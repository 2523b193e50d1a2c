"""Who gets which samples: `fedgrid partition`."""

from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedgrid.federation import members
from fedgrid.federation.federation import pool
from fedgrid.federation.members import Partition, fits, read_partition, write_partition
from fedgrid.partitions import _fedntd, dirichlet, match_name, odd, parse_name, shards
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


@pytest.mark.parametrize("name", ["dir100", "dir0.00001", "dir12.5", "shards10", "odd2", "given"])
def test_a_name_of_one_spelling_is_known(name):
    kind, number = parse_name(name)
    assert name.endswith(number)
    assert kind


# --- every recipe ----------------------------------------------------------------------------


@recipes
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5, 100.0])
@pytest.mark.parametrize("clients", [1, 3, 20])
def test_every_sample_has_exactly_one_client(recipe, alpha, clients):
    found = made(recipe, alpha, clients=clients)
    assert len(found.members) == clients
    assert sorted(np.concatenate(found.members)) == list(range(2000))


@recipes
def test_every_sample_has_exactly_one_client_where_classes_differ_in_size(recipe):
    labels = np.repeat(np.arange(10), [1, 2, 3, 5, 8, 100, 200, 300, 0, 600])
    found = made(recipe, 0.1, labels=labels)
    assert sorted(np.concatenate(found.members)) == list(range(len(labels)))
    assert found.counts[:, 8].sum() == 0


@recipes
def test_every_sample_has_exactly_one_client_where_nobody_wants_a_class(recipe):
    # Among the seeds are some that draw zeros for a class in all three mixtures.
    for seed in range(12):
        found = made(recipe, 0.01, "x", seed, clients=3, labels=LABELS[:1442])
        assert sorted(np.concatenate(found.members)) == list(range(1442))
        assert (found.counts >= 0).all()


@recipes
def test_counts_are_those_of_the_members(recipe):
    found = made(recipe)
    for ids, counts in zip(found.members, found.counts, strict=True):
        assert np.bincount(LABELS[ids], minlength=10).tolist() == counts.tolist()
        assert ids.tolist() == sorted(ids)


@recipes
def test_the_same_names_give_the_same_partition(recipe):
    assert same(made(recipe, 0.1, "digits", 0), made(recipe, 0.1, "digits", 0))


@recipes
@pytest.mark.parametrize("names", [("digits", 1), ("mnist", 0)])
def test_other_names_give_another_partition(recipe, names):
    one, other = made(recipe, 0.1, "digits", 0), made(recipe, 0.1, *names)
    assert (one.counts != other.counts).any()


@recipes
def test_samples_of_a_class_are_dealt_out_at_random(recipe):
    # Clients in order must not get samples in order.
    found = made(recipe, 100.0, clients=2)
    sevens = np.flatnonzero(LABELS == 7)
    first = np.isin(sevens, found.members[0])
    assert 0.3 < first[: len(sevens) // 2].mean() < 0.7


@recipes
def test_a_larger_alpha_gives_clients_more_classes(recipe):
    classes = [
        np.mean([(made(recipe, alpha, "x", seed).counts > 0).sum(1).mean() for seed in range(3)])
        for alpha in (0.05, 0.5, 5.0)
    ]
    assert classes[0] + 1 < classes[1]
    assert classes[1] + 1 < classes[2]


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


@pytest.mark.parametrize("recipe", [*RECIPES, *_fedntd.FIXED])
def test_shards_give_clients_few_classes(recipe):
    found = shards.draw(LABELS, 10, 20, recipe, 2, "digits", 0)
    assert np.array_equal(np.sort(np.concatenate(found.members)), np.arange(len(LABELS)))
    assert (found.counts > 0).sum(1).max() == 2
    assert [len(m) for m in found.members] == found.counts.sum(1).tolist()


def test_shards_depend_on_the_names_but_for_a_fixed_recipe():
    def counts(recipe, seed):
        return shards.draw(LABELS, 10, 20, recipe, 2, "digits", seed).counts.tolist()

    assert counts("balanced", 0) == counts("balanced", 0) != counts("balanced", 1)
    assert counts("fedntd", 0) == counts("fedntd", 1)


def test_a_fixed_recipe_is_the_same_for_all_seeds():
    one, other = (dirichlet.draw(LABELS, 10, 20, "fedntd", 0.5, n) for n in range(2))
    assert all(np.array_equal(*pair) for pair in zip(one.members, other.members, strict=True))
    assert one.counts.sum(1).min() >= 10


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


def test_the_odd_partition_depends_on_the_names():
    one, other, third = (odd.draw(LABELS, 10, 3, "fedntd", "2", "digits", n) for n in (0, 0, 1))
    assert same(one, other)
    assert not same(one, third)


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


def test_clientwise_sizes_are_close_to_each_other():
    # METHODS of FedAU on 50,000 labels and 100 clients: 337 to 919 at alpha 0.05.
    labels = np.arange(50_000) % 10
    clientwise, classwise = (
        made(recipe, 0.05, clients=100, labels=labels).counts.sum(1)
        for recipe in ("clientwise", "classwise")
    )
    assert clientwise.std() < 200 < classwise.std()
    assert clientwise.min() > 200


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


def test_balanced_has_the_counts_of_its_first_good_draw(monkeypatch):
    """The reference keeps the counts of all draws, as this recipe did at first."""
    first = []
    for seed in range(6):
        totals = np.random.default_rng(seed).integers(55, 65, 6)
        rng, other = (np.random.default_rng(seed) for _ in range(2))
        monkeypatch.setattr(dirichlet, "CELLS", 12 * 50 * seed)  # parts of 1, 50, 100 draws
        number, expected = balanced_with_all_counts(totals, 12, 0.12, rng)
        found = dirichlet.balanced(totals, 12, 0.12, other)
        np.testing.assert_array_equal(found, expected)
        assert rng.random() == other.random()
        first.append(number)
    assert len({*first}) > 3


def balanced_with_all_counts(totals, clients, alpha, rng) -> tuple[int, np.ndarray]:
    """The number of the first good draw, and its counts."""
    while True:
        sizes, pieces = np.zeros((AT_ONCE, clients), np.int64), []
        for total in totals:
            shares = rng.standard_gamma(alpha, sizes.shape, np.float32)
            shares = shares * (sizes < totals.sum() / clients)
            pieces.append(dirichlet.cut(shares + (shares.sum(1) == 0)[:, None], total))
            sizes += pieces[-1]
        good = np.flatnonzero(sizes.min(1) >= 10)
        if len(good):
            return good[0], np.stack([piece[good[0]] for piece in pieces], axis=1)


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


def counted(monkeypatch, module, *names: str) -> list[int]:
    """Have the arguments' lengths of some of numpy's functions counted in a module."""
    seen: list[int] = []

    def watched(function):
        return lambda array, *rest, **more: (
            seen.append(len(array)) or function(array, *rest, **more)
        )

    functions = {name: watched(getattr(np, name)) for name in names}
    monkeypatch.setattr(module, "np", SimpleNamespace(**vars(np) | functions))
    return seen


@pytest.mark.parametrize("clients", [10, 500])
def test_classwise_looks_for_classes_only_when_one_has_run_out(clients, monkeypatch):
    seen = counted(monkeypatch, dirichlet, "flatnonzero")
    totals = np.full(10, clients // 5)  # the samples that are given are all that there are
    dirichlet.classwise(totals, clients, 0.1, np.random.default_rng(0))
    assert len(seen) <= 1 + 10


@pytest.mark.parametrize("clients", [4, 400])
def test_classes_of_all_clients_are_counted_at_once(clients, monkeypatch):
    found = made("clientwise", 0.5, clients=clients)
    seen = counted(monkeypatch, members, "bincount")
    assert fits(found, LABELS, 10)
    assert seen == [2000]
    lists = [ids[::-1] for ids in found.members]
    np.testing.assert_array_equal(members.of_members(lists, LABELS, 10).counts, found.counts)
    assert len(seen) == 2


class Counting(list):
    """A list that counts how many of its items were read."""

    read = 0

    def __iter__(self):
        Counting.read += len(self)
        return super().__iter__()

    def __getitem__(self, place):
        found = super().__getitem__(place)
        Counting.read += len(found) if isinstance(place, slice) else 1
        return found


def test_sizes_of_all_clients_are_summed_once():
    lists = [np.arange(k % 3) + 10 * k for k in range(200)]
    images = torch.zeros(2000, 1)
    found = pool(images, torch.zeros(2000), lists)
    object.__setattr__(found, "sizes", Counting(found.sizes))
    Counting.read = 0
    for client, ids in enumerate(lists):
        assert found.of_client(client).tolist() == ids.tolist()
    assert Counting.read <= 2 * 200


# --- files -----------------------------------------------------------------------------------


@recipes
def test_what_was_written_is_read(recipe, tmp_path):
    found = made(recipe)
    write_partition(found, tmp_path / "new" / "made.npz")
    read = read_partition(tmp_path / "new" / "made.npz")
    assert same(found, read)
    assert np.array_equal(found.counts, read.counts)


def test_clients_without_samples_are_kept(tmp_path):
    empty = np.empty(0, np.int64)
    found = Partition([empty, np.array([0, 1]), empty], np.array([[0], [2], [0]]))
    write_partition(found, tmp_path / "made.npz")
    assert [len(members) for members in read_partition(tmp_path / "made.npz").members] == [0, 2, 0]


@pytest.mark.parametrize("length", [0, 3, -100])
def test_a_damaged_partition_is_refused(length, tmp_path):
    path = tmp_path / "made.npz"
    write_partition(made("classwise"), path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UsageError, match=r"made.npz is damaged .* delete it"):
        read_partition(path)
