"""Who gets which samples: `fedgrid.partition`."""

import numpy as np
import pytest

from fedgrid.federation.members import Partition, read_partition, write_partition
from fedgrid.partitions import _fedntd, dirichlet, odd, shards
from fedgrid.partitions.dirichlet import AT_ONCE, RECIPES
from fedgrid.runtime.names import UsageError

recipes = pytest.mark.parametrize("recipe", RECIPES)
LABELS = np.random.default_rng(0).permutation(np.arange(2000) % 10)


def made(recipe: str, alpha: float = 0.1, *names, clients: int = 20, labels=LABELS):
    return dirichlet.draw(labels, 10, clients, recipe, alpha, *(names or ("digits", 0)))


def same(one: Partition, other: Partition) -> bool:
    return all(map(np.array_equal, one.members, other.members))


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
    for members, counts in zip(found.members, found.counts, strict=True):
        assert np.bincount(LABELS[members], minlength=10).tolist() == counts.tolist()
        assert members.tolist() == sorted(members)


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
    with pytest.raises(UsageError, match=r"no balanced partition of dir0.01 over 50 clients"):
        made("balanced", 0.01, clients=50)


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
