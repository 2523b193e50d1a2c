"""The schedule of a round: its cohort, and the table of sample ids that both backends follow.

A client with fewer samples than the batch size uses all of them in each step. An epoch's last batch
is dropped if it has fewer than `smallest_batch` samples, and a client with fewer samples in total
does not train; but with `smallest_batch` 1 or 2 a client with one sample trains on it twice.
BatchNorm needs this limit: where maps are single pixels, its statistics are those of as many values
as the batch has samples, and it divides gradients by their deviation. The table gives the gradient
of a small last batch, divided by that of a whole batch, and the factor by which this last batch
changes the saliency R_k / n_k. Measured with ResNet-18 on 32x32 images of CIFAR-10
(20 clients, random initial weights, one epoch in batches of 64):

    samples in the last batch        2     3     4     5     6     7     8    10    12    16
    gradient, median               819    18   4.2   2.8   2.8   3.5   3.1   2.6   2.3   1.9
    gradient, largest             6113    77    43   8.5   6.4   5.1   4.1   4.0   3.0   2.3
    saliency, median              3e11    11   1.6   1.3   1.4   1.5   1.3   1.3   1.1   1.0
    saliency, largest              inf  2043   186   6.7   3.8   3.2   2.4   1.9   1.7   1.5

Sampling noise alone makes the gradient of 8 samples sqrt(64 / 8) = 2.8 times as large as that of
64. From 8 samples on, little more than this noise is left, so 8 is the default. On 64x64 images,
where the last maps have four pixels, two samples correspond to eight on 32x32. With
`smallest_batch` 2 the rule is GradMA's, except that a client with one sample uses it twice, which
gives the same mean gradient. With 1, for models without BatchNorm, no batch is dropped; a batch of
one sample is refused where a BatchNorm has maps of one pixel (`engine/batches.py`).

Local epochs may be limited to a least and a most number of steps (`least_steps`, `most_steps`): a
client goes on with freshly shuffled epochs up to the least, and stops after the most.

Where local work is counted in steps, every round begins with a new shuffle. With `batches:
continued` a client resumes its epoch where its last round ended, as in the codes of GradMA and
FedAU: it sees every sample before it sees one again. This matters where an epoch is longer than a
round: beyond 640 samples at 10 steps of 64. The cohorts of earlier rounds say how far a client has
come, and the seed fixes these, so a resumed run needs no more state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from typing import Any

import numpy as np

from fedgrid.federation import augment, cohorts, conditions, schedule, seeds
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Protocol


@dataclass(frozen=True)
class Work:
    """The local work of a cohort, padded to one shape."""

    clients: np.ndarray  # (C,) ids, ascending
    index: np.ndarray  # (S, C, B) sample ids
    valid: np.ndarray  # (S, C, B) False where `index` is padding
    draws: np.ndarray  # (S, C, B, A) uniform random numbers for the augmentation
    noise: int  # seed of random numbers that the model draws itself, such as dropout

    @property
    def steps(self) -> np.ndarray:
        """Return the number of local steps of each client, (C,)."""
        return self.valid.any(-1).sum(0)


def cohort_of(population: int, protocol: Protocol, *names: Any) -> np.ndarray:
    """Draw the ids of a round's clients from those that are there; `names` end with the round."""
    there = conditions.available(population, protocol, *names)
    share, sampler = protocol["participation"], protocol["sampler"]
    return cohort(population, share, *names, sampler=sampler, there=there)


def cohort(
    population: int,
    participation: float,
    *names: Any,
    sampler: str = "seeded",
    there: np.ndarray | None = None,
) -> np.ndarray:
    """Draw the ids of a round's clients, uniformly without replacement, ascending.

    The last of the names is the round; the sampler "round" depends on the round only. With `there`,
    the ids of some clients, they are drawn from these, and are these if there are no more.
    """
    size = cohorts.size(population, participation, sampler)
    drawn: Any = population if there is None else there
    size = size if there is None else min(size, len(there))
    if sampler == "round":
        return np.sort(schedule.cohort_by_round(drawn, size, names[-1]))
    return np.sort(seeds.generator("cohort", *names).choice(drawn, size, replace=False))


def cohort_by_round(population: int | np.ndarray, size: int, round: int) -> np.ndarray:
    """Draw the ids of a round's clients as the code of FedNTD and FedLMD does, from round 0 on.

    `population` is their number, or the ids of those that are there. It seeds numpy's legacy
    generator with the round's index, so all runs have the same cohorts.
    """
    return np.random.RandomState(round).choice(population, size, replace=False)


class Turns:
    """In how many rounds each client has taken part, counted from round 0 on, round by round.

    It draws each cohort once if the rounds that it is asked for ascend. An earlier round than the
    last one is counted from round 0 again.
    """

    def __init__(self, population: int, participation: float, sampler: str, *names: Any):
        self.draw = partial(cohort, population, participation, *names, sampler=sampler)
        self.counts, self.counted = np.zeros(population, np.int64), 0

    def before(self, number: int) -> np.ndarray:
        """Return (N,): in how many rounds before round `number` each client has taken part."""
        if number < self.counted:
            self.counts[:], self.counted = 0, 0
        for earlier in range(self.counted, number):
            self.counts[self.draw(earlier)] += 1
        self.counted = number
        return self.counts


turns_of = cache(Turns)  # those of a run, by what its cohorts depend on


def trains(samples: int, batch: int, smallest: int) -> bool:
    """Whether a client with so many samples has a batch."""
    return samples > 0 and not 2 < min(smallest, batch) > samples


def split(order: np.ndarray, batch: int, smallest: int = 2) -> list[np.ndarray]:
    """Split samples into batches in this order; return none if they are too few to train on."""
    smallest = min(smallest, batch)
    if not trains(len(order), batch, smallest):
        return []
    if len(order) == 1:
        return [order.repeat(2)]
    found = [order[start : start + batch] for start in range(0, len(order), batch)]
    return found[:-1] if len(found[-1]) < smallest else found


def count_batches(samples: int, batch: int, smallest: int = 2) -> int:
    """Return how many batches `split` makes of so many samples."""
    smallest = min(smallest, batch)
    if not trains(samples, batch, smallest):
        return 0
    return max(samples // batch + (samples % batch >= max(smallest, 1)), 1)


def count_idle(sizes: Iterable[int], protocol: Protocol) -> int:
    """Return how many clients of these numbers of samples never train: they have no batch."""
    batch, smallest = protocol["batch"], protocol["smallest_batch"]
    return sum(not trains(size, batch, smallest) for size in sizes)


def mean_samples(sizes: Iterable[int], protocol: Protocol) -> float:
    """Return the samples that a client goes through in a round, repeated ones counted again.

    It is the mean over the clients that train, without stragglers. `sizes` are all clients' numbers
    of samples.
    """
    rng = np.random.default_rng(0)  # the numbers do not depend on the order
    clients = Counter(sizes)  # many clients have as many samples
    samples = {size: sum(map(len, batches(size, protocol, rng))) for size in clients}
    training = sum(clients[size] for size, number in samples.items() if number)
    return sum(clients[size] * number for size, number in samples.items()) / max(training, 1)


def check_someone_trains(sizes: list[int], protocol: Protocol) -> None:
    """Raise a UsageError if no client has enough samples for a batch."""
    if count_idle(sizes, protocol) == len(sizes):
        raise UsageError(
            f"none of the {len(sizes)} clients would ever train, because the largest has "
            f"{max(sizes)} training samples, and {describe_need(protocol)}: lower "
            "`smallest_batch`, or take fewer `clients`"
        )


def describe_need(protocol: Protocol) -> str:
    """Return how many samples a client needs, in words for a message."""
    smallest = min(protocol["smallest_batch"], protocol["batch"])
    least = smallest if smallest > 2 else 1
    return f"a client needs {least} (`smallest_batch: {protocol['smallest_batch']}`)"


def batches(samples: int, protocol: Protocol, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield a client's batches in a round: `local` epochs, or `local` steps of shuffled epochs."""
    size = protocol["batch"], protocol["smallest_batch"]
    if not (in_epoch := count_batches(samples, *size)):
        return iter(())
    endless = (b for _ in count() for b in split(rng.permutation(samples), *size))
    return islice(endless, steps(in_epoch, protocol))


def steps(in_epoch: int, protocol: Protocol) -> int:
    """Return the local steps in a round of a client with so many batches in an epoch."""
    if protocol["local_unit"] == "steps":
        return protocol["local"]
    found = max(protocol["local"] * in_epoch, protocol["least_steps"])
    return min(found, protocol["most_steps"]) if protocol["most_steps"] else found


def epochs(number: int) -> dict[str, Any]:
    """Return the fields of a protocol for local work of so many epochs, without limits."""
    return {"local": number, "local_unit": "epochs", "least_steps": 0, "most_steps": 0}


def continued(samples: int, protocol: Protocol, turn: int, *names: Any) -> Iterator[np.ndarray]:
    """A client's batches in its round number `turn`: its epochs resume where it stopped.

    `names` seed the client's epochs, which do not depend on the rounds in which it takes part.
    """
    size, steps = (protocol["batch"], protocol["smallest_batch"]), protocol["local"]
    if not (in_epoch := count_batches(samples, *size)):
        return iter(())
    epoch, done = divmod(turn * steps, in_epoch)
    rngs = (seeds.generator("batches", *names, "epoch", number) for number in count(epoch))
    endless = (b for rng in rngs for b in split(rng.permutation(samples), *size))
    return islice(endless, done, done + steps)


def batches_of(
    clients: np.ndarray, members: list[np.ndarray], protocol: Protocol, rngs: Any, *names: Any
) -> list[Any]:
    """Return every client's batches in a round, as positions among its samples."""
    sizes = [len(members[k]) for k in clients]
    if protocol["local_unit"] == "epochs" or protocol["batches"] == "fresh":
        return [list(batches(n, protocol, rng)) for n, rng in zip(sizes, rngs, strict=True)]
    *seeded, number = names
    sampled = protocol["participation"], protocol["sampler"]
    turn = turns_of(len(members), *sampled, *seeded).before(number)
    pairs = zip(sizes, clients, strict=True)
    return [list(continued(n, protocol, turn[k], *seeded, int(k))) for n, k in pairs]


def work(clients: np.ndarray, members: list[np.ndarray], protocol: Protocol, *names: Any) -> Work:
    """Return the table of one round; `members[k]` are the sample ids of client k.

    `names` seed the draws; with `batches: continued`, the last name is the round.
    """
    rngs = [seeds.generator("batches", *names, int(k)) for k in clients]
    drawn = batches_of(clients, members, protocol, rngs, *names)
    lists = [
        conditions.reduced(own, protocol, *names, int(k))
        for own, k in zip(drawn, clients, strict=True)
    ]
    widest = max((len(batch) for client in lists for batch in client), default=1)
    shape = (max(map(len, lists), default=0), len(clients), max(widest, protocol["batch"]))
    index, valid = np.zeros(shape, np.int64), np.zeros(shape, bool)
    draws = np.zeros((*shape, augment.draws(protocol["augment"])), np.float32)
    for c, (k, rng) in enumerate(zip(clients, rngs, strict=True)):
        for s, positions in enumerate(lists[c]):
            index[s, c, : len(positions)] = members[k][positions]
            valid[s, c, : len(positions)] = True
        draws[: len(lists[c]), c] = rng.random(draws[: len(lists[c]), c].shape, np.float32)
    return Work(clients, index, valid, draws, seeds.seed("noise", *names))
