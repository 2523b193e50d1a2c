"""Who trains on what, with which random numbers: `fedgrid.federation`."""

from itertools import islice

import numpy as np
import pytest
import torch

from conftest import BACKENDS, PROTOCOL, SIZES, assert_same, methods, simulate
from fedgrid.engine.batches import has_single
from fedgrid.federation import augment, cohorts, schedule, seeds
from fedgrid.study.protocol import PROTOCOL as DEFAULTS

MEMBERS = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
EVERYONE = np.arange(len(SIZES))


def made(*names, clients=EVERYONE, **protocol) -> schedule.Work:
    return schedule.work(clients, MEMBERS, PROTOCOL | protocol, *names)


# --- batches ---------------------------------------------------------------------------------

ONE, TWO = ({"local": n, "local_unit": "epochs"} for n in (1, 2))
FIVE = {"local": 5, "local_unit": "steps"}
SIZES_OF_BATCHES = [  # samples, fields beside batches of 4 and at least 2, and the sizes
    *((n, ONE, of) for n, of in ((0, []), (1, [2]), (2, [2]), (3, [3]), (4, [4]))),  # 1: twice
    *((n, ONE, of) for n, of in ((5, [4]), (6, [4, 2]), (8, [4, 4]), (11, [4, 4, 3]))),
    *((n, FIVE, of) for n, of in ((1, [2] * 5), (5, [4] * 5), (6, [4, 2, 4, 2, 4]), (40, [4] * 5))),
    *((n, TWO | {"smallest_batch": 3}, 2 * of) for n, of in ((2, []), (3, [3]), (6, [4]))),
    *((n, ONE | {"smallest_batch": 8}, of) for n, of in ((3, []), (6, [4]), (8, [4, 4]))),
    (11, TWO, [4, 4, 3] * 2),
    (11, TWO | {"least_steps": 6, "most_steps": 6}, [4, 4, 3] * 2),
    (11, TWO | {"least_steps": 8, "most_steps": 20}, [4, 4, 3] * 2 + [4, 4]),
    (11, TWO | {"most_steps": 5}, [4, 4, 3, 4, 4]),
    (0, TWO | {"least_steps": 8}, []),
]


@pytest.mark.parametrize(("samples", "fields", "sizes"), SIZES_OF_BATCHES)
def test_the_sizes_of_batches(samples, fields, sizes):
    found = schedule.batches(samples, PROTOCOL | fields, np.random.default_rng(0))
    assert [len(batch) for batch in found] == sizes


def test_a_protocol_that_says_nothing_drops_batches_below_eight():
    protocol = DEFAULTS | {"local": 1, "local_unit": "epochs"}
    rests = {n: [*schedule.batches(64 + n, protocol, np.random.default_rng(0))] for n in range(9)}
    assert [len(batches) for batches in rests.values()] == [1] * 8 + [2]
    assert not [*schedule.batches(7, protocol, np.random.default_rng(0))]


def test_batches_are_counted_without_making_them(monkeypatch):
    sizes = [(n, batch, least) for n in range(30) for batch in range(1, 9) for least in range(10)]
    splits = [schedule.split(np.arange(n), batch, least) for n, batch, least in sizes]
    monkeypatch.setattr(schedule, "split", None)
    for size, made in zip(sizes, splits, strict=True):
        assert schedule.count_batches(*size) == len(made)
        assert has_single(*size) == any(len(one) == 1 for one in made)


def test_epochs_are_shuffled_anew():
    protocol = PROTOCOL | {"local": 2, "local_unit": "epochs", "batch": 40}
    first, second = schedule.batches(40, protocol, np.random.default_rng(0))
    assert first.tolist() != second.tolist() != list(range(40))


def test_steps_are_those_of_as_many_epochs():
    rngs = [np.random.default_rng(0) for _ in range(2)]
    steps = schedule.batches(11, PROTOCOL | {"local": 7}, rngs[0])
    epochs = schedule.batches(11, PROTOCOL | {"local": 3, "local_unit": "epochs"}, rngs[1])
    for one, other in zip(steps, islice(epochs, 7), strict=True):
        assert one.tolist() == other.tolist()


def test_limits_of_steps_do_not_change_the_batches_that_stay():
    def drawn(**limits) -> list[list[int]]:
        protocol = PROTOCOL | schedule.epochs(2) | limits
        found = schedule.batches(11, protocol, np.random.default_rng(0))
        return [batch.tolist() for batch in found]

    plain, longer = drawn(), drawn(least_steps=9)
    assert longer[:6] == plain
    assert sorted(np.concatenate(longer[6:])) == [*range(11)]  # one more epoch
    assert longer[6:] not in (plain[:3], plain[3:])
    assert drawn(most_steps=4) == plain[:4]


def test_a_clients_draws_are_permutations_and_then_what_its_images_need():
    """No draw is wasted, so runs without limits have the numbers that they always had."""
    work = made("x", local=2, local_unit="epochs", clients=np.array([4]))
    rng = seeds.generator("batches", "x", 4)
    positions = [batch for _ in range(2) for batch in schedule.split(rng.permutation(9), 4)]
    for found, expected in zip(work.index[:, 0], positions, strict=True):
        assert found.tolist() == MEMBERS[4][expected].tolist()
    draws = rng.random(work.draws[:, 0].shape, np.float32)
    assert np.array_equal(work.draws[:, 0], draws)


def test_one_more_epoch_of_a_client_has_no_limits():
    limits = {"local_unit": "epochs", "least_steps": 7, "most_steps": 8}
    samples = simulate(methods("fedavg"), **limits).engine.samples
    assert [len(y) for _, y in samples.epoch(4, 0)] == [4, 4]


# --- the table of a round --------------------------------------------------------------------


def test_the_table_is_padded_to_one_shape():
    work = made("x", local=2, local_unit="epochs")
    assert work.index.shape == work.valid.shape == (4, 6, 4)
    assert work.draws.shape == (4, 6, 4, 3)
    assert work.steps.tolist() == [2, 2, 2, 4, 4, 0]
    assert work.valid.sum((0, 2)).tolist() == [4, 4, 6, 12, 16, 0]
    assert not work.index[~work.valid].any()
    assert (np.diff(work.valid.astype(int), axis=2) <= 0).all()  # padding comes last
    assert (np.diff(work.valid.any(2).astype(int), axis=0) <= 0).all()
    assert made("x", clients=np.array([0]), batch=1).index.shape == (3, 1, 2)


def test_clients_train_on_their_own_samples():
    work = made("x")
    for c, members in enumerate(MEMBERS):
        assert set(work.index[:, c][work.valid[:, c]]) <= set(members)


def test_a_clients_work_does_not_depend_on_who_else_takes_part():
    alone, together = made("x", clients=np.array([3])), made("x")
    for one, other in ((alone.index, together.index), (alone.draws, together.draws)):
        np.testing.assert_array_equal(one[:, 0], other[:, 3])


# --- batches that go on from round to round ---------------------------------------------------

GOES_ON = {"batches": "continued", "local_unit": "steps", "local": 2, "batch": 2, "augment": []}


def rounds_of(client: int, rounds: int, **protocol) -> list[list[int]]:
    """The samples of a client's batches in all rounds, whether it takes part or not."""
    return [
        [sorted(made("x", r, clients=np.array([client]), **protocol).index[s, 0].tolist())
         for s in range(2)]
        for r in range(rounds)
    ]  # fmt: skip


def test_a_client_goes_on_in_its_epoch_where_its_last_round_ended():
    """Client 4 has nine samples: four whole batches, and the ninth is dropped."""
    everybody = GOES_ON | {"participation": 1.0}
    seen = rounds_of(4, 6, **everybody)
    for epoch in range(3):
        samples = [n for r in (2 * epoch, 2 * epoch + 1) for batch in seen[r] for n in batch]
        assert len(set(samples)) == 8
    assert seen[0] + seen[1] != seen[2] + seen[3]
    fresh = rounds_of(4, 6, **everybody | {"batches": "fresh"})
    one, other = ({n for batch in fresh[r] for n in batch} for r in (0, 1))
    assert one & other


def test_rounds_without_the_client_do_not_count():
    turns = schedule.Turns(len(SIZES), 1 / 3, "seeded", "x")
    part = [r for r in range(40) if 4 in schedule.cohort(len(SIZES), 1 / 3, "x", r)]
    assert 0 < len(part) < 40
    assert [turns.before(r)[4] for r in part] == list(range(len(part)))
    always, sometimes = rounds_of(4, 40, **GOES_ON | {"participation": 1.0}), []
    for r in part[:6]:
        sometimes.append(rounds_of(4, r + 1, **GOES_ON | {"participation": 1 / 3})[-1])
    assert sometimes == always[: len(sometimes)]


def test_turns_are_counted_in_any_order_of_rounds():
    """A resumed run begins with a later round, and another run of the same names with round 0."""
    parts = np.zeros((30, 20), int)
    for number in range(30):
        parts[number, schedule.cohort(20, 0.2, "x", number, sampler="round")] = 1
    turns = schedule.Turns(20, 0.2, "round", "x")
    for number in [5, 6, 7, 0, 1, 2, 29, 29, 12, 13]:
        assert turns.before(number).tolist() == parts[:number].sum(0).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_whose_batches_go_on_ends_the_same_after_a_stop(backend):
    protocol = {"batches": "continued", "batch": 2, "local": 2}
    whole = simulate(methods("fedavg"), backend, **protocol).play(4)
    stopped = simulate(methods("fedavg"), backend, **protocol)
    stopped.play(2)
    again = simulate(methods("fedavg"), backend, **protocol)
    again.run = stopped.run
    assert_same(again.play(2), whole)


# --- cohorts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("population", "part", "size"), [(100, 0.1, 10), (7, 1.0, 7), (20, 0.2, 4)]
)
def test_a_cohort_is_sorted_and_without_repeats(population, part, size):
    for round in range(20):
        found = schedule.cohort(population, part, "x", round)
        assert len(found) == cohorts.size(population, part, "seeded") == size
        assert found.tolist() == sorted(set(found))
        assert set(found) <= set(range(population))


@pytest.mark.parametrize(
    ("part", "seeded", "by_round"),
    [(0.29, 29, 28), (0.1, 10, 10), (0.05, 5, 5), (0.57, 57, 56), (0.996, 100, 99), (0.001, 0, 1)],
)
def test_the_sampler_round_rounds_a_cohorts_size_down_but_not_to_nobody(part, seeded, by_round):
    found = {sampler: cohorts.size(100, part, sampler) for sampler in ("seeded", "round")}
    assert found == {"seeded": seeded, "round": by_round}
    for sampler, size in found.items():
        assert len(schedule.cohort(100, part, "x", 0, sampler=sampler)) == size


def test_cohorts_by_the_round_are_the_same_for_all_names():
    one, other = (schedule.cohort(100, 0.1, n, 9, sampler="round") for n in ("x", "y"))
    assert one.tolist() == other.tolist() == [3, 20, 23, 39, 42, 46, 68, 70, 73, 75]
    assert schedule.cohort(100, 0.1, "x", 8, sampler="round").tolist() != one.tolist()


def test_everybody_takes_part_equally_often():
    taken = np.concatenate([schedule.cohort(20, 0.2, "x", round) for round in range(2000)])
    # 400 each; the standard deviation is sqrt(2000 * 0.2 * 0.8) = 18.
    assert np.abs(np.bincount(taken) - 400).max() < 5 * 18


# --- seeds -----------------------------------------------------------------------------------


def test_seeds_are_written_in_stone():
    # The first eight bytes of sha256("batches/digits/0"), shifted right by one bit.
    assert seeds.seed("batches", "digits", 0) == 780173762070192556


def test_seeds_are_63_bits_of_all_names():
    found = [seeds.seed("purpose", "digits", i, j) for i in range(30) for j in range(30)]
    assert len(set(found)) == 900
    assert all(0 <= seed < 2**63 for seed in found)
    torch.manual_seed(max(found))


# --- augmentation ----------------------------------------------------------------------------

IMAGES = torch.randint(1, 256, (3, 2, 5, 7), generator=torch.Generator().manual_seed(0)).byte()
LAST = 1 - 2**-24  # the largest number below 1 that is drawn


@pytest.mark.parametrize(("name", "mode"), [("crop", "constant"), ("crop-reflect", "reflect")])
def test_a_crop_is_a_window_of_the_image_with_four_pixels_around_it(name, mode):
    """Black ones, or the image mirrored at its borders. Of nine offsets 4 is the image itself."""
    draws = torch.tensor([[0.0, LAST], [0.5, 0.5], [0.9, 0.2]])
    padded = torch.nn.functional.pad(IMAGES.float(), [4] * 4, mode=mode).byte()
    at = ((0, 8), (4, 4), (8, 1))
    windows = [padded[i, :, top : top + 5, left : left + 7] for i, (top, left) in enumerate(at)]
    assert torch.equal(augment.augment(IMAGES, [name], draws), torch.stack(windows))


def test_every_offset_is_equally_likely():
    draws = torch.arange(900)[:, None].expand(900, 2) / 900
    dot = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    dot[..., 4, 4] = 1
    rows = augment.augment(dot.expand(900, 1, 9, 9), ["crop"], draws).amax(3).argmax(2)
    assert rows.flatten().bincount().tolist() == [100] * 9


def test_flip_mirrors_left_to_right():
    found = augment.augment(IMAGES, ["flip"], torch.tensor([[0.0], [0.49], [0.5]]))
    assert torch.equal(found, torch.stack([IMAGES[0], IMAGES[1], IMAGES[2].flip(2)]))


def test_images_are_augmented_each_in_its_own_way():
    draws = torch.tensor([[0.0, 0.0, 0.0], [LAST, LAST, LAST], [0.5, 0.5, 0.9]])
    found = augment.augment(IMAGES, ["crop", "flip"], draws)
    for i in range(3):
        alone = augment.augment(IMAGES[i : i + 1], ["crop", "flip"], draws[i : i + 1])
        assert torch.equal(found[i], alone[0])


def test_normalised_images_have_the_given_mean_and_deviation():
    images = torch.tensor([0, 51, 255]).byte().view(3, 1, 1, 1)
    mean, std = (torch.full((1, 1, 1), value, dtype=torch.float64) for value in (0.2, 0.5))
    found = augment.normalise(images, mean, std)
    torch.testing.assert_close(found.flatten(), torch.tensor([-0.4, 0.0, 1.6]).double())
    assert images.flatten().tolist() == [0, 51, 255]


def test_cutout_is_a_square_of_zeros_around_a_pixel_clipped_to_the_image():
    x = torch.ones(3, 2, 32, 30)
    draws = torch.tensor([[0.0, 0.0], [0.5, 0.5], [LAST, 0.1]])
    found = augment.cut_out(x, ["cutout"], draws)
    expected = x.clone()
    expected[0, :, 0:8, 0:8] = 0  # around (0, 0)
    expected[1, :, 8:24, 7:23] = 0  # (16, 15)
    expected[2, :, 23:32, 0:11] = 0  # (31, 3)
    assert torch.equal(found, expected)
    assert x.min() == 1
    assert augment.cut_out(x, ["flip"], torch.zeros(3, 1)) is x


def test_every_augmentation_has_draws_of_its_own():
    names = ["flip", "cutout", "crop"]
    found = augment.drawn(names, torch.arange(10.0).view(2, 5))
    assert {name: part[0].tolist() for name, part in found.items()} == {
        "flip": [0], "cutout": [1, 2], "crop": [3, 4],
    }  # fmt: skip
