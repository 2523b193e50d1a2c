"""Dirichlet partitions: every class is split over clients by shares of concentration alpha.

Several recipes have this name in the literature; a protocol chooses one:

  classwise   every class is cut by a draw of its own, after each client got two samples of random
              classes (GradMA)
  balanced    every class is cut by a draw of its own over the clients that have less than their
              fair share, and everything is drawn again until the smallest client has 10 samples
              (FedNova, MOON, FedNTD)
  clientwise  every client draws its mixture of classes, and classes are cut in proportion; sizes
              stay close to each other (FedAU)
  fedntd      `balanced` exactly as FedNTD's and FedLMD's code draws it, which does not depend on
              the run's seed (`_fedntd.py`)

The numbers of samples per client and class are drawn first, then the samples are dealt out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members, of_owners
from fedgrid.partitions import _fedntd
from fedgrid.partitions._fedntd import FIXED
from fedgrid.partitions._restarts import AT_ONCE, SMALLEST, Draws
from fedgrid.runtime.names import UsageError, known

PATTERN = r"dir((?=.*[1-9])[0-9]{1,18}\.?[0-9]{0,18})"
EXAMPLE = "dir0.1"
LABEL = "alpha={}"
GIVEN = 2  # samples of random classes that every client of `classwise` gets
CELLS = 2**22  # draws times clients of `balanced` computed at once, at most, to spare memory
RESTARTS = 300_000  # fifteen times as many as alpha = 0.05 over 100 clients needs


def cut(shares: np.ndarray, sizes: Any) -> np.ndarray:
    """Split `sizes` items in proportion to `shares` (..., N), rounded down cumulatively."""
    shares = np.asarray(shares, np.float64)
    ends = np.floor(shares.cumsum(-1) / shares.sum(-1, keepdims=True) * np.expand_dims(sizes, -1))
    ends[..., -1] = sizes
    return np.diff(ends, prepend=0, axis=-1).astype(np.int64)


def classwise(
    totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Return counts (N, K) that sum to `totals` (K,)."""
    rest, given = totals.copy(), np.zeros((clients, len(totals)), np.int64)
    left = np.flatnonzero(rest)
    for client in np.tile(np.arange(clients), GIVEN):
        label = left[rng.integers(0, len(left))]  # as `rng.choice(left)`
        given[client, label] += 1
        rest[label] -= 1
        if not rest[label]:
            left = np.flatnonzero(rest)
    shares = rng.dirichlet(np.full(clients, alpha), len(totals))
    return given + cut(shares, rest).T


def balanced(
    totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Return counts (N, K) that sum to `totals` (K,); UsageError if no draw succeeds.

    It does not go on to draw if no draw can be expected to succeed (`_restarts.py`).
    """
    draws = Draws(alpha, clients, RESTARTS)
    while draws.go_on():
        before = rng.bit_generator.state
        small, counts = draw_many(totals, clients, alpha, rng, kept=0)
        good = int(small.argmin())
        if small[good]:
            draws.add(small)
            continue
        if good:
            rng.bit_generator.state = before
            _, counts = draw_many(totals, clients, alpha, rng, kept=good)
        return counts
    raise draws.refusal()


def draw_many(
    totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator, kept: int
) -> tuple[np.ndarray, np.ndarray]:
    """Make AT_ONCE draws; return how many clients are too small in each, and the counts of one.

    The counts (N, K) are those of the draw number `kept`: those of all draws would need too much
    memory. A draw in which nobody takes a class has at least one client that is too small.
    """
    sizes, counts = np.zeros((AT_ONCE, clients), np.int64), np.empty((clients, len(totals)), int)
    impossible, fair = np.zeros(AT_ONCE, bool), totals.sum() / clients
    rows = max(CELLS // clients, 1)
    parts = [slice(first, first + rows) for first in range(0, AT_ONCE, rows)]
    for label, total in enumerate(totals):
        for part in parts:
            # Gammas are a Dirichlet draw up to their sum, and faster than numpy's for small alpha.
            shares = rng.standard_gamma(alpha, sizes[part].shape, np.float32) * (sizes[part] < fair)
            nobody = shares.sum(1) == 0
            pieces = cut(shares + nobody[:, None], total)
            sizes[part] += pieces
            impossible[part] |= nobody & (total > 0)
            if part.start <= kept < part.stop:
                counts[:, label] = pieces[kept - part.start]
    return np.maximum((sizes < SMALLEST).sum(1), impossible), counts


def clientwise(
    totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Return counts (N, K) that sum to `totals` (K,)."""
    mixtures = rng.dirichlet(np.full(len(totals), alpha), clients)
    mixtures += mixtures.sum(0) == 0  # a class that no client drew is shared equally
    ends = np.round(mixtures.cumsum(0) / mixtures.sum(0) * totals)
    return np.diff(ends, prepend=0, axis=0).astype(np.int64)


RECIPES = {"classwise": classwise, "balanced": balanced, "clientwise": clientwise}
NEEDS_SAMPLES = {"classwise": GIVEN, "balanced": SMALLEST, "clientwise": 1}  # per client


def draw(
    labels: np.ndarray, classes: int, clients: int, recipe: str, number: str, *names: Any
) -> Partition:
    """Deal out all samples by Dirichlet(alpha); `number` is alpha, and `names` seed the draw.

    UsageError for an unknown recipe and for too few samples per client.
    """
    alpha = float(number)
    if recipe in FIXED:
        return of_members(_fedntd.dirichlet(labels, classes, clients, alpha), labels, classes)
    draw_counts = RECIPES[known("recipe", recipe, [*RECIPES, *FIXED])]
    if len(labels) < clients * NEEDS_SAMPLES[recipe]:
        raise UsageError(
            f"{len(labels)} samples are too few for {clients} clients of a {recipe} partition, "
            f"which needs {NEEDS_SAMPLES[recipe]} each: lower `clients`"
        )
    rng = seeds.generator("partition", recipe, clients, alpha, *names)
    totals = np.bincount(labels, minlength=classes)
    counts = checked_counts(draw_counts, totals, clients, alpha, rng)
    owners = np.empty(len(labels), np.int64)
    for c in range(classes):
        order = rng.permutation(np.flatnonzero(labels == c))
        owners[order] = np.repeat(np.arange(clients), counts[:, c])
    return Partition(of_owners(owners, clients), counts)


def checked_counts(
    draw_counts: Callable[..., np.ndarray],
    totals: np.ndarray,
    clients: int,
    alpha: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return counts (N, K); UsageError for an alpha too small or too large for floats."""
    with np.errstate(invalid="ignore", over="ignore"):
        try:
            counts = draw_counts(totals, clients, alpha, rng)
        except UsageError:
            raise
        except ValueError as problem:
            raise UsageError(
                f"no partition can be drawn with alpha = {alpha:g} ({problem}): choose another "
                "alpha"
            ) from problem
    if counts.min() < 0 or (counts.sum(0) != totals).any():
        raise UsageError(
            f"no partition can be drawn with alpha = {alpha:g}, which is too small or too large: "
            "choose another alpha"
        )
    return counts
