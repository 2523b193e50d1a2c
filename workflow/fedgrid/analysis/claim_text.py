"""Write in words how a claim is tested, so that a reader can disagree with the reading.

`FedLMD minus FedAvg is at least 17 points (as rounded: 16.5); CIFAR-10, alpha=0.05` is generated
from the entry in the study's file.
"""

import math
from collections.abc import Iterable
from functools import partial

import pandas as pd

from fedgrid import claim as claims
from fedgrid.analysis import tables, verdicts
from fedgrid.analysis.measures import EXPLAINED
from fedgrid.analysis.readable import write_name, write_steps
from fedgrid.claim import Claim
from fedgrid.partitions import write_label
from fedgrid.runtime.names import in_words, listed
from fedgrid.study.records import Study

STATED = ["claim", "says", "section", "we_test", "reading", "added"]
PAPER = "paper"  # before the protocol of a printed table
CAUTION = (
    "The sentence gives a size in the paper's own setting. This scale has other networks, data or "
    "rounds, in which an effect can have another size: it does not refute the paper's number."
)


def state_claims(study: Study, claim: int | None = None) -> pd.DataFrame:
    """Return a row per claim, or the row of one: its sentence, and how we test it.

    `added` is the number of the paper's claim to which we added the row, and empty for its own.
    """
    parents = claims.find_parents(study.get("claims", []))
    rows = [
        {
            "claim": number,
            "says": each["says"],
            "section": each["section"],
            "we_test": write_test(each, study),
            "reading": each.get("reading", ""),
            "added": str(parents[number - 1] or ""),
        }
        for number, each in verdicts.number_claims(study, claim)
    ]
    return pd.DataFrame(rows, columns=STATED)


def write_test(claim: Claim, study: Study) -> str:
    """Return what must be true of our runs so that a claim holds, with its bounds and setting."""
    names = ", ".join(name.removeprefix(claims.COEFFICIENT) for name in claims.measures(claim))
    measured = "" if names == "accuracy" else f"{names}: "
    said = measured + write_difference(claim, study)
    if "share" in claim:
        said += f", in more than {100 * claim['share']:g} % of the comparisons"
    return "; ".join(filter(None, (said, write_setting(claim, study))))


def write_comparisons(judged: pd.DataFrame, study: Study) -> list[str]:
    """Write the deciding comparison of each claim; the protocol only if a data set has several."""
    several = tables.is_in_heading(judged.dropna(subset="protocol"), "protocol")
    shown = judged if several else judged.assign(protocol="")
    rows = shown[verdicts.COMPARED].astype(object).fillna("").to_dict("records")
    return [write_comparison(row, study) for row in rows]


def write_comparison(row: dict, study: Study) -> str:
    """Write a comparison in words: `FedSLS minus FedAvg; digits, alpha=0.1; 20 clients`."""
    over = f" minus {write_name(study, row['over'])}" if row["over"] else ""
    where = write_name(study, row["dataset"]), write_steps(write_label, row["partition"])
    parts = [
        write_name(study, row["method"]) + over,
        "" if row["measure"] == "accuracy" else row["measure"],
        ", ".join(filter(None, where)),
        write_steps(partial(write_name, study, axis="protocol"), row["protocol"]),
    ]
    return "; ".join(filter(None, parts))


def write_explained(claim: Claim, values: pd.DataFrame) -> str:
    """Say how much the autoencoders explain on whose maps a claim rests; else an empty text."""
    others = {name for _, name in verdicts.list_pairs(claim)}
    named = others.union(listed(claim["method"]))
    of = (values["measure"] == EXPLAINED) & values["method"].isin(named)
    return tables.describe_explained(values[of].set_index("method")["value"]).strip()


def write_difference(claim: Claim, study: Study) -> str:
    subject = join_pairs(claim, study)
    for axis, names in claim.get("along", {}).items():
        steps = [*dict.fromkeys(write_place(study, axis, name) for name in names)]
        of = "" if axis == "method" else f" of {subject}"
        subject = f"the change{of} from each of {in_words(steps)} to the next"
    return f"{subject} {write_bounds(claim)}"


def join_pairs(claim: Claim, study: Study) -> str:
    """Write which methods are compared with which: `FedLMD minus each of FedAvg and FedNTD`."""
    by_others: dict[tuple[str, ...], list[str]] = {}
    for method, names in claims.others(claim).items():
        by_others.setdefault(tuple(names), []).append(method)
    pairs = [
        " minus ".join(write_each(side, study) for side in (methods, names) if side)
        for names, methods in by_others.items()
    ]
    return ", ".join(pairs)


def write_each(names: Iterable[str], study: Study) -> str:
    """Write one name, or `each of` several."""
    written = [write_place(study, "method", name) for name in names]
    return written[0] if len(written) == 1 else f"each of {in_words(written)}"


def write_bounds(claim: Claim) -> str:
    """Write the bounds: `is above 0`, `is between 2 and 7 points (as rounded: 1.5 to 7.5)`."""
    given = claim.get("least", -math.inf), claim.get("most", math.inf)
    wide = [f"{bound:g}" for bound in claims.find_bounds(claim) if math.isfinite(bound)]
    rounded = f" (as rounded: {' to '.join(wide)})" if "rounding" in claim else ""
    in_points = {*claims.measures(claim)} <= {*claims.IN_POINTS}
    return write_range(*given, in_points, claim.get("tie") == verdicts.HOLDS) + rounded


def write_range(low: float, high: float, in_points: bool, with_bounds: bool) -> str:
    """Write a range of numbers, of which one end may be infinite; equality may hold, too."""
    last = high if math.isfinite(high) else low
    unit = (" point" if abs(last) == 1 else " points") if in_points else ""
    if low == -high:
        return f"is within {high:g}{unit} of 0"
    if math.isfinite(low + high):
        return f"is between {low:g} and {high:g}{unit}"
    if last == 0 and not with_bounds:
        return "is above 0" if last == low else "is below 0"
    return f"is at {'least' if last == low else 'most'} {last:g}{unit}"


def write_setting(claim: Claim, study: Study) -> str:
    """Write the data sets and partitions that a claim is about, if it names them.

    Protocols are written if they have one label, as those of several scales do.
    """
    places = {
        axis: [*dict.fromkeys(write_place(study, axis, name) for name in listed(claim[axis]))]
        for axis in ("dataset", "partition", "protocol")
        if axis in claim
    }
    if len(places.get("protocol", ())) > 1:
        del places["protocol"]
    return ", ".join(map(" or ".join, places.values()))


def write_place(study: Study, axis: str, name: str) -> str:
    """Write a name on an axis as readers know it, without commas: `FedAvg (normalised)`."""
    if axis == "partition":
        return write_label(name)
    first, *more = write_name(study, name.removeprefix(f"{PAPER} "), axis).split(", ")
    return f"{first} ({', '.join(more)})" if more else first
