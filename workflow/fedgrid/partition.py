"""Partition a dataset over clients, and write who has which samples.

    python -m fedgrid.partition fedsls-quick/digits/dir0.1/fedavg/seed0

`shards2` deals every client two shards of one class each. For `dir0.1`, several recipes go by the
same name in the literature; a protocol chooses one:

  classwise   every class is cut over the clients by a Dirichlet draw of its own, after each client
              got two samples of random classes (GradMA)
  balanced    the same, but a client that has its fair share gets no more, and everything is drawn
              again until the smallest client has 10 samples (FedNova, MOON, FedNTD)
  clientwise  every client draws its mixture of classes, and classes are cut in proportion; sizes
              stay close to each other (FedAU)
  fedntd      `balanced` as FedNTD's and FedLMD's code draws it, number for number: whatever the
              run's seed, and shards likewise (`legacy.py`)

The numbers of samples per client and class are drawn first, and samples dealt out once at the end.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedgrid import cli, files, legacy, seeds, spec, stage
from fedgrid.names import UsageError, known

GIVEN = 2  # samples of random classes that a client of `classwise` is sure to have
SMALLEST = 10  # samples of a client of `balanced`
AT_ONCE = 256  # restarts of `balanced` drawn side by side
RESTARTS = 300_000  # fifteen times what alpha = 0.05 over 100 clients takes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partition:
    """Who has what."""

    members: list[np.ndarray]  # sample ids of each client, ascending
    counts: np.ndarray  # (N, K) samples of each client and class


def cut(shares: np.ndarray, sizes) -> np.ndarray:
    """Split `sizes` items in proportion to `shares` (..., N), rounded down cumulatively."""
    shares = np.asarray(shares, np.float64)
    ends = np.floor(shares.cumsum(-1) / shares.sum(-1, keepdims=True) * np.expand_dims(sizes, -1))
    ends[..., -1] = sizes
    return np.diff(ends, prepend=0, axis=-1).astype(np.int64)


def classwise(totals: np.ndarray, clients: int, alpha: float, rng) -> np.ndarray:
    """Counts (N, K) that sum to `totals` (K,)."""
    given = np.zeros((clients, len(totals)), np.int64)
    for client in np.tile(np.arange(clients), GIVEN):
        left = np.flatnonzero(given.sum(0) < totals)
        given[client, rng.choice(left)] += 1
    rest = totals - given.sum(0)
    shares = rng.dirichlet(np.full(clients, alpha), len(totals))
    return given + cut(shares, rest).T


def balanced(totals: np.ndarray, clients: int, alpha: float, rng) -> np.ndarray:
    """Counts (N, K) that sum to `totals` (K,)."""
    fair = totals.sum() / clients
    for _ in range(0, RESTARTS, AT_ONCE):
        sizes, pieces = np.zeros((AT_ONCE, clients), np.int64), []
        possible = np.ones(AT_ONCE, bool)
        for total in totals:
            # Gammas are a Dirichlet draw up to their sum, and faster than numpy's for small alpha.
            shares = rng.standard_gamma(alpha, sizes.shape, np.float32) * (sizes < fair)
            nobody = shares.sum(1) == 0
            pieces.append(cut(shares + nobody[:, None], total))
            sizes += pieces[-1]
            possible &= ~nobody | (total == 0)
        good = np.flatnonzero(possible & (sizes.min(1) >= SMALLEST))
        if len(good):
            return np.stack([piece[good[0]] for piece in pieces], axis=1)
    raise UsageError(f"no balanced partition of dir{alpha} over {clients} clients was found")


def clientwise(totals: np.ndarray, clients: int, alpha: float, rng) -> np.ndarray:
    """Counts (N, K) that sum to `totals` (K,)."""
    mixtures = rng.dirichlet(np.full(len(totals), alpha), clients)
    mixtures += mixtures.sum(0) == 0  # a class that nobody drew goes to all alike
    ends = np.round(mixtures.cumsum(0) / mixtures.sum(0) * totals)
    return np.diff(ends, prepend=0, axis=0).astype(np.int64)


RECIPES = {"classwise": classwise, "balanced": balanced, "clientwise": clientwise}
NEEDS_SAMPLES = {"classwise": GIVEN, "balanced": SMALLEST, "clientwise": 1}  # per client
FIXED = {"fedntd": legacy.SEED}  # recipes that draw the same whatever the seed


def shards(labels: np.ndarray, classes: int, clients: int, recipe: str, each: float, *names):
    """Deal out all samples in shards of one class, `each` to a client.

    Raises UsageError if they cannot be dealt out evenly.
    """
    seed = FIXED.get(recipe, seeds.seed("shards", clients, each, *names) % 2**32)
    members = legacy.shards(labels, classes, clients, int(each), seed)
    return of_members(members, labels, classes)


def dirichlet(labels: np.ndarray, classes: int, clients: int, recipe: str, alpha: float, *names):
    """Deal out all samples by Dirichlet(alpha); `names` seed the draw.

    Raises UsageError for an unknown recipe and for too few samples per client.
    """
    if recipe in FIXED:
        members = legacy.dirichlet(labels, classes, clients, alpha)
        return of_members(members, labels, classes)
    draw = RECIPES[known("recipe", recipe, [*RECIPES, *FIXED])]
    if len(labels) < clients * NEEDS_SAMPLES[recipe]:
        raise UsageError(
            f"{len(labels)} samples are too few for {clients} clients of a {recipe} partition, "
            f"which needs {NEEDS_SAMPLES[recipe]} each"
        )
    rng = seeds.generator("partition", recipe, clients, alpha, *names)
    totals = np.bincount(labels, minlength=classes)
    counts = drawn(draw, totals, clients, alpha, rng)
    members = [[] for _ in range(clients)]
    for c in range(classes):
        order = rng.permutation(np.flatnonzero(labels == c))
        for k, part in enumerate(np.split(order, counts[:, c].cumsum()[:-1])):
            members[k].append(part)
    return Partition([np.sort(np.concatenate(parts)) for parts in members], counts)


KINDS = {"dir": dirichlet, "shards": shards}


def of_members(members: list[np.ndarray], labels: np.ndarray, classes: int) -> Partition:
    """The partition that gives every client these samples."""
    counts = np.stack([np.bincount(labels[ids], minlength=classes) for ids in members])
    return Partition([np.sort(ids) for ids in members], counts)


def drawn(draw, totals: np.ndarray, clients: int, alpha: float, rng) -> np.ndarray:
    """Counts (N, K); UsageError for an alpha too far out for floating point to draw with."""
    with np.errstate(invalid="ignore", over="ignore"):
        try:
            counts = draw(totals, clients, alpha, rng)
        except UsageError:
            raise
        except ValueError as problem:
            raise UsageError(f"alpha = {alpha:g} cannot be drawn with ({problem})") from problem
    if counts.min() < 0 or (counts.sum(0) != totals).any():
        raise UsageError(f"alpha = {alpha:g} cannot be drawn with: it is too small or too large")
    return counts


def fits(made: Partition, labels: np.ndarray, classes: int) -> bool:
    """Whether every sample has exactly one client, and the counts are those of the members."""
    dealt, right = np.concatenate([*made.members, []]), (len(made.members), classes)
    if made.counts.shape != right or not np.array_equal(np.sort(dealt), np.arange(len(labels))):
        return False
    pairs = zip(made.members, made.counts, strict=True)
    return all(np.array_equal(np.bincount(labels[m], minlength=classes), n) for m, n in pairs)


def write(made: Partition, path: Path) -> None:
    """As .npz: client k has indices[offsets[k]:offsets[k + 1]]; counts is (N, K)."""
    offsets = np.cumsum([0, *map(len, made.members)])
    with files.replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, indices=np.concatenate(made.members), offsets=offsets, counts=made.counts)


def read(path: Path) -> Partition:
    """What `write` wrote; UsageError if it is damaged."""
    with files.whole(str(path)):
        names = ("indices", "offsets", "counts")
        indices, offsets, counts = files.read_arrays(path, *names).values()
        found = [(str(array.dtype), array.ndim) for array in (indices, offsets, counts)]
        if found != [("int64", 1), ("int64", 1), ("int64", 2)]:
            raise ValueError(f"{', '.join(names)} are {found}")
        members = np.split(indices, offsets[1:-1])
        if [0, *np.cumsum([*map(len, members)])] != offsets.tolist():
            raise ValueError("the offsets are not in order")
        return Partition(members, counts)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    asked = stage.parser(__doc__, "data").parse_args(arguments)
    run = stage.resolve(asked, "partition")
    from fedgrid.arrays import open_data

    data = open_data(stage.inputs(asked, run, "data")["data"])
    protocol, names = run["protocol"], (run["dataset"], run["seed"])
    kind, number = spec.skew(run["partition"])
    made = KINDS[kind](
        *(data.train_labels, data.classes, protocol["clients"], protocol["recipe"]), number, *names
    )
    out = asked.out or asked.results / spec.inputs(run)["partition"]
    write(made, out)
    sizes = made.counts.sum(1)
    log.info("%s: sizes %d to %d, median %d", out, sizes.min(), sizes.max(), np.median(sizes))


if __name__ == "__main__":
    cli.run(main)
