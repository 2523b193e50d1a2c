"""The runs that one claim needs: `claims@3` is the part of the grid `claims` for claim 3.

`analysis/measures.py` computes the measures that claims can name.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, TypedDict

from fedgrid.runtime.names import UsageError, known, listed

SETTING: tuple[Literal["protocol", "dataset", "partition"], ...] = (
    "protocol",
    "dataset",
    "partition",
)
MARK = "@"  # between the name of a grid and the number of a claim
SPEED_UP, LOG_SPEED_UP = "speed-up", "log speed-up"
OVER = "fedavg"
BOUNDS = ("least", "most")
IN_POINTS = ("accuracy", "personal accuracy", "early accuracy", "steadiness")  # of percent
OF_RUNS = (*IN_POINTS, SPEED_UP, LOG_SPEED_UP)
OPERATIONS, BEFORE, TRAFFIC = "operations", "operations before", "traffic"
UNEVENNESS = "unevenness"
OF_BASE = (
    SPEED_UP,
    LOG_SPEED_UP,
    OPERATIONS,
    BEFORE,
    TRAFFIC,
)  # measures beside those of runs of OVER
OF_KIND = {  # measures that need their own source
    "interpolation": ("best alpha", "best beta", "share at lemma 3.1", "share at proposition 3.4"),
    "seconds": (OPERATIONS, BEFORE, TRAFFIC),
    "predictions": (UNEVENNESS,),
}
ALONE = (*OF_KIND["seconds"], *OF_KIND["predictions"])  # which need no other table of runs
COEFFICIENT = "coefficient "  # before the name of a column that a method logs
# Other measures are those of the fidelity study.


class Claim(TypedDict):
    """A claim of a paper: measure(method) - measure(over) is between least and most.

    Of a key that takes one name or several, `listed` gives the list. An `added` claim is not the
    paper's: it compares with placebos, too, or in another form, and belongs to the paper's claim
    of this number, or with `true` to that before it.
    """

    says: str
    section: str
    measure: NotRequired[str | list[str]]
    method: str | list[str]
    over: NotRequired[str | list[str] | dict[str, str | list[str]]]
    protocol: NotRequired[str | list[str]]
    dataset: NotRequired[str | list[str]]
    partition: NotRequired[str | list[str]]
    along: NotRequired[dict[str, list[str]]]
    least: NotRequired[float]
    most: NotRequired[float]
    tie: NotRequired[str]
    share: NotRequired[float]
    rounding: NotRequired[float | dict[str, float]]  # of the sentence's numbers; by bound
    reading: NotRequired[str]  # why the sentence is tested like this
    equal: NotRequired[dict[str, str]]  # by method, why it cannot differ from the others
    added: NotRequired[bool | int]


def split_grid(grid: str) -> tuple[str, int]:
    """Return the grid and the claim in a name such as claims@3; 0 for a grid as a whole."""
    name, mark, number = grid.rpartition(MARK)
    return (name, int(number)) if mark and number.isdecimal() else (grid, 0)


def find_claim(study: str, claims: list[Claim], number: int) -> Claim:
    """Return a claim by its number, from 1 on; UsageError if the study has no such claim."""
    if not 0 < number <= len(claims):
        raise UsageError(f"the study {study} has {len(claims)} claims: there is no claim {number}")
    return claims[number - 1]


def part_for_claim(
    block: Mapping[str, Any], claim: Claim, known_as: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Return a block with those names only that the claim compares; an axis may become empty.

    `known_as` has, by axis, what claims call the names of tuned methods and protocols.
    """
    if not needs_runs(claim):
        return {**block, "method": []}
    needed: dict[str, list[str]] = {axis: listed(claim[axis]) for axis in SETTING if axis in claim}
    needed["method"] = listed(claim["method"]) + [n for of in others(claim).values() for n in of]
    if {*OF_BASE} & {*measures(claim)}:
        needed["method"].append(OVER)
    for axis, names in claim.get("along", {}).items():
        needed[axis] = [
            name for name in needed.get(axis, names) if name in names or axis == "method"
        ]
    kept = {
        axis: [n for n in listed(block[axis]) if {n, known_as.get(axis, {}).get(n)} & {*names}]
        for axis, names in needed.items()
    }
    return {**block, **kept}


def find_bounds(claim: Claim) -> tuple[float, float]:
    """Return the least and the most that a difference may be.

    A sentence that rounds its numbers to whole points says 2 for anything from 1.5 to 2.5: each
    bound is wider by half of the claim's `rounding`.
    """
    given = claim.get("rounding", 0)
    half = {key: (given.get(key, 0) if isinstance(given, dict) else given) / 2 for key in BOUNDS}
    return (
        claim.get("least", -math.inf) - half["least"],
        claim.get("most", math.inf) + half["most"],
    )


def find_direction(claim: Claim) -> int:
    """Return 1 for a claim about the size of a gain, -1 for that of a loss, and 0 for others."""
    low, high = find_bounds(claim)
    if not {"over", "along"} & {*claim}:
        return 0
    return int(low > 0) - int(high < 0)


def find_parents(claims: Iterable[Claim]) -> list[int]:
    """Return for each claim the number of the claim that it was added to; 0 for the paper's own."""
    parents, latest = [], 0
    for number, claim in enumerate(claims, start=1):
        added = claim.get("added", False)
        latest = latest if added else number
        parents.append(latest if added is True else int(added))
    return parents


def others(claim: Claim) -> dict[str, list[str]]:
    """Return by method what a claim compares it with; `over` may have other names by method."""
    over = claim.get("over")
    by_method = over if isinstance(over, dict) else dict.fromkeys(listed(claim["method"]), over)
    return {method: listed(names) for method, names in by_method.items()}


def check_others(where: str, claim: Claim) -> None:
    """Raise a UsageError unless an `over` by method has all methods of the claim and no other."""
    methods, compared = listed(claim["method"]), others(claim)
    for name in compared:
        known(f"method of {where} with its own `over`", name, methods)
    if missing := [name for name in methods if name not in compared]:
        raise UsageError(f"{where}: `over` has no entry for the method {missing[0]}: add one")


def measures(claim: Claim) -> list[str]:
    """Return what a claim compares; accuracy, if it does not say."""
    return listed(claim.get("measure", "accuracy"))


def needs_runs(claim: Claim) -> bool:
    """Whether a claim is about runs."""
    return any(map(is_of_runs, measures(claim)))


def needs_experiments(claim: Claim) -> bool:
    """Whether a claim is about the fidelity study."""
    return not all(map(is_of_runs, measures(claim)))


def is_of_runs(measure: str) -> bool:
    """Whether a measure is of runs, or of what is computed from them afterwards."""
    named = OF_RUNS, *OF_KIND.values()
    return is_coefficient(measure) or any(measure in of for of in named)


def is_coefficient(measure: str) -> bool:
    """Whether a measure is a coefficient that a method logs, or the difference of two."""
    return measure.startswith(COEFFICIENT)


def needs_kind(claim: Claim, kind: str) -> bool:
    """Whether a claim needs a kind of collected table; some are there for some measures only."""
    own, asked = OF_KIND.get(kind), {*measures(claim)}
    return bool(asked & {*own}) if own else not asked <= {*ALONE}
