"""Who trains on what in a round: the table of sample ids that both backends follow.

A client with fewer samples than the batch size uses them all in each step. An epoch's last batch is
dropped if it has fewer than `smallest_batch` samples, and a client that has fewer in all does not
train. The limit is for BatchNorm: where maps are single pixels, its statistics are those of as many
values as the batch has samples, and it divides gradients by their deviation. Measured with
ResNet-18 on 32x32 images of CIFAR-10 (20 clients, random initial weights, one epoch in batches of
64), the gradient of a last batch, over that of a whole one, and what the batch makes of the
saliency R_k / n_k are:

    samples in the last batch        2     3     4     5     6     7     8    10    12    16
    gradient, median               819    18   4.2   2.8   2.8   3.5   3.1   2.6   2.3   1.9
    gradient, largest             6113    77    43   8.5   6.4   5.1   4.1   4.0   3.0   2.3
    saliency, median              3e11    11   1.6   1.3   1.4   1.5   1.3   1.3   1.1   1.0
    saliency, largest              inf  2043   186   6.7   3.8   3.2   2.4   1.9   1.7   1.5

Sampling noise alone makes the gradient of 8 samples sqrt(64 / 8) = 2.8 times as large as that of
64. From 8 on little more than that is left, so 8 is the default. On 64x64 images, where the last
maps have four pixels, two samples do what eight do on 32x32. At 2 the rule is GradMA's, except
that a client with one sample trains on it twice over, which is the same mean gradient. At 1, for
models without BatchNorm, nothing is dropped.

Where local work is counted in steps, every round begins with a new shuffle. With `batches:
continued` a client goes on in its epoch where its last round ended, as in the codes of GradMA and
FedAU: it sees every sample before it sees one again. This matters where an epoch is longer than a
round: beyond 640 samples at 10 steps of 64. The cohorts of earlier rounds say how far a client has
come, and the seed fixes these, so a resumed run needs no more state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, islice

import numpy as np

from fedgrid import augment, cohorts, legacy, seeds


@dataclass(frozen=True)
class Work:
    """The local work of a cohort, padded to one shape."""

    clients: np.ndarray  # (C,) ids, ascending
    index: np.ndarray  # (S, C, B) sample ids
    valid: np.ndarray  # (S, C, B) False where `index` is padding
    draws: np.ndarray  # (S, C, B, A) uniform random numbers for the augmentation
    noise: int  # seeds what a model itself draws, such as dropout

    @property
    def steps(self) -> np.ndarray:
        """(C,) how many steps each client takes."""
        return self.valid.any(-1).sum(0)


def cohort(population: int, participation: float, *names, sampler: str = "seeded") -> np.ndarray:
    """The ids of a round's clients, uniformly without replacement, ascending.

    The last of the names is the round; the sampler "round" draws by it alone (`legacy.py`).
    """
    size = cohorts.size(population, participation, sampler)
    if sampler == "round":
        return np.sort(legacy.cohort(population, size, names[-1]))
    return np.sort(seeds.generator("cohort", *names).choice(population, size, replace=False))


@cache
def turns(rounds: int, population: int, participation: float, sampler: str, *names) -> np.ndarray:
    """(rounds, N) in how many rounds before each of the `rounds` every client takes part."""
    parts = np.zeros((rounds, population), np.int64)
    for number in range(rounds):
        parts[number, cohort(population, participation, *names, number, sampler=sampler)] = 1
    return parts.cumsum(0) - parts


def split(order: np.ndarray, batch: int, smallest: int = 2) -> list[np.ndarray]:
    """The batches of samples in this order; none if they are too few to train on."""
    smallest = min(smallest, batch)
    if not len(order) or 2 < smallest > len(order):
        return []
    if len(order) == 1:
        return [order.repeat(2)]
    found = [order[start : start + batch] for start in range(0, len(order), batch)]
    return found[:-1] if len(found[-1]) < smallest else found


def batches(samples: int, protocol: dict, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """A client's batches in one round: `local` epochs, or `local` steps over shuffled epochs."""
    size = protocol["batch"], protocol["smallest_batch"]
    if not split(np.arange(samples), *size):
        return iter(())
    in_steps = protocol["local_unit"] == "steps"
    epochs = count() if in_steps else range(protocol["local"])
    endless = (b for _ in epochs for b in split(rng.permutation(samples), *size))
    return islice(endless, protocol["local"] if in_steps else None)


def continued(samples: int, protocol: dict, turn: int, *names) -> Iterator[np.ndarray]:
    """A client's batches in its round number `turn`: its epochs go on where it last stopped.

    `names` seed the client's epochs, which are the same whatever the rounds it takes part in.
    """
    size, steps = (protocol["batch"], protocol["smallest_batch"]), protocol["local"]
    if not (in_epoch := len(split(np.arange(samples), *size))):
        return iter(())
    epoch, done = divmod(turn * steps, in_epoch)
    rngs = (seeds.generator("batches", *names, "epoch", number) for number in count(epoch))
    endless = (b for rng in rngs for b in split(rng.permutation(samples), *size))
    return islice(endless, done, done + steps)


def batches_of(
    clients: np.ndarray, members: list[np.ndarray], protocol: dict, rngs, *names
) -> list:
    """Every client's batches in a round, as positions among its samples."""
    sizes = [len(members[k]) for k in clients]
    if protocol["local_unit"] == "epochs" or protocol["batches"] == "fresh":
        return [list(batches(n, protocol, rng)) for n, rng in zip(sizes, rngs, strict=True)]
    *seeded, number = names
    sampled = protocol["participation"], protocol["sampler"]
    rounds = max(protocol["rounds"], number + 1)
    turn = turns(rounds, len(members), *sampled, *seeded)[number]
    pairs = zip(sizes, clients, strict=True)
    return [list(continued(n, protocol, turn[k], *seeded, int(k))) for n, k in pairs]


def work(clients: np.ndarray, members: list[np.ndarray], protocol: dict, *names) -> Work:
    """The table of one round; `members[k]` are the sample ids of client k.

    `names` seed what is drawn; the last of them is the round, where batches are continued.
    """
    rngs = [seeds.generator("batches", *names, int(k)) for k in clients]
    lists = batches_of(clients, members, protocol, rngs, *names)
    widest = max((len(batch) for client in lists for batch in client), default=1)
    shape = (max(map(len, lists)), len(clients), max(widest, protocol["batch"]))
    index, valid = np.zeros(shape, np.int64), np.zeros(shape, bool)
    draws = np.zeros((*shape, augment.draws(protocol["augment"])), np.float32)
    for c, (k, rng) in enumerate(zip(clients, rngs, strict=True)):
        for s, positions in enumerate(lists[c]):
            index[s, c, : len(positions)] = members[k][positions]
            valid[s, c, : len(positions)] = True
        draws[: len(lists[c]), c] = rng.random(draws[: len(lists[c]), c].shape, np.float32)
    return Work(clients, index, valid, draws, seeds.seed("noise", *names))
