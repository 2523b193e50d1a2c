"""The gain of a part that is added to methods, such as `+norm`: `fedavg+norm` over `fedavg`.

A gain is the difference of accuracies of two runs of a seed, in points of percent.
"""

from collections.abc import Iterable

import pandas as pd

from fedgrid.analysis import verdicts
from fedgrid.analysis.published import join_published, list_published_cells
from fedgrid.analysis.scores import CELL, SETTING, pair_runs
from fedgrid.runtime.names import NothingToDrawError
from fedgrid.study.records import Study

GAIN = ["gain", "low", "high"]
PAIRS = "pairs"
PAPER = "paper"  # the protocol of printed values of the paper's main setting


def name_pairs(methods: Iterable[str], suffix: str, needed: bool = True) -> dict[str, str]:
    """Return the name with the suffix for every method that occurs with the suffix and without it.

    NothingToDrawError if there is no such pair and the pairs are `needed`.
    """
    unique = [*dict.fromkeys(methods)]
    pairs = {name: name + suffix for name in unique if name + suffix in unique}
    if needed and not pairs:
        original = unique[0].removesuffix(suffix)
        raise NothingToDrawError(
            f"no method of these runs has the suffix `{suffix}` beside its original: name both in "
            f"the grid, such as {original} and {original}{suffix}"
        )
    return pairs


def compute_gains(scores: pd.DataFrame, pairs: dict[str, str]) -> pd.DataFrame:
    """Return a row per original and setting: the mean gain, its 95 % interval over seeds, pairs.

    `pairs` is how many seeds have both runs. The gain is missing if a run of the setting diverged.
    """
    rows = []
    for original, changed in pairs.items():
        gaps = pair_runs(scores, changed, [original]).groupby(SETTING, sort=False)["accuracy"]
        for setting, differences in gaps:
            bounds = verdicts.confidence_interval(differences.to_numpy())
            rows.append(
                (original, *setting, differences.mean(skipna=False), *bounds, len(differences))
            )
    table = pd.DataFrame(rows, columns=["method", *SETTING, *GAIN, PAIRS])
    return table.astype(dict.fromkeys(GAIN, float) | {PAIRS: "Int64"})


def join_printed(table: pd.DataFrame, study: Study, suffix: str) -> pd.DataFrame:
    """Add the printed accuracies of each original, without and with the suffix, and the gain."""
    changed = table[CELL].assign(method=table["method"] + suffix)
    sides = {"original": table[CELL], "changed": changed}
    values = {n: join_published(cells, study)["published"].to_numpy() for n, cells in sides.items()}
    gain = values["changed"] - values["original"]
    return table.assign(
        printed_original=values["original"], printed_changed=values["changed"], printed_gain=gain
    )


def list_printed_pairs(study: Study, suffix: str) -> pd.DataFrame:
    """Return a row per pair of printed accuracies, without and with the suffix: both and the gain.

    The protocol `paper` is the paper's main setting. The gain is our difference of the two values;
    a gain that the paper prints itself is not used.
    """
    cells = list_published_cells(study)
    back = {name + suffix: name for name in cells["method"]}
    changed = cells[cells["method"].isin(back)].replace({"method": back})
    keys = ["method", "dataset", "partition", "as_protocol"]
    both = cells.merge(changed, on=keys, suffixes=("_original", "_changed"))
    names = {f"published_{name}": f"printed_{name}" for name in ("original", "changed")}
    both = both.rename(columns=names)[[*keys, *names.values()]]
    both = both.assign(protocol=both["as_protocol"].replace("", PAPER)).drop(columns="as_protocol")
    return both.assign(printed_gain=both["printed_changed"] - both["printed_original"])
