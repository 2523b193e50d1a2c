"""The gain of a part that is added to methods, the gain of its placebo, and the printed values.

The option `suffix` names the part: with `+norm`, each method X with runs of X+norm has rows. The
option `placebo` is the suffix of the same part without its mechanism. A gain speaks for the part
only if the placebo does not have it. `printed` names a published table of the study. Its data sets
without runs get rows, too, so that runs of a smaller scale stand beside what the paper prints.
"""

from collections.abc import Iterable

import pandas as pd

from fedgrid.analysis import figures, tables, verdicts
from fedgrid.analysis.published import join_published, list_published_cells
from fedgrid.analysis.scores import CELL, SETTING, mean_over_seeds, pair_runs, score_runs
from fedgrid.report._texts import write_numbers
from fedgrid.runtime.names import NothingToDrawError, known
from fedgrid.study.records import Study

GAIN = ["gain", "low", "high"]
PAIRS = "pairs"
PAPER = "paper"  # the protocol of printed values of the paper's main setting
AXES = ("dataset", "partition", "protocol", "method")
# What they name (study/options.py).
OPTIONS = {"suffix": "ending", "placebo": "ending", "printed": "published"}


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    suffix: str,
    placebo: str | None = None,
    printed: str | None = None,
) -> pd.DataFrame:
    """Return a row per original method and setting: both accuracies, gains and printed values.

    Accuracies are in percent, gains in points with 95 % intervals over seeds.
    """
    scores = score_runs(runs)
    table = join_means(scores, name_pairs(scores["method"], suffix))
    if placebo:
        pairs = name_pairs(scores["method"], placebo, needed=False)
        theirs = compute_gains(scores, pairs)
        names = {name: f"placebo_{name}" for name in (*GAIN, PAIRS)}
        table = table.merge(theirs.rename(columns=names), how="left", on=CELL)
    table = join_printed(table, study, suffix)
    more = list_printed_only(study, printed, suffix, table["dataset"])
    table = pd.concat([table, more], ignore_index=True)
    for name in ("original", "changed", "gain"):
        table[f"{name}_difference"] = table[name] - table[f"printed_{name}"]
    figures.add_labels(table, study, ("method", "dataset", "protocol"))
    return tables.add_alpha(table.assign(scale=scale)).round(4)


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
    gaps = [pair_runs(scores, changed, [original]) for original, changed in pairs.items()]
    if not gaps:
        gaps = [scores[:0].assign(over="")]
    table = average_with_intervals(pd.concat(gaps), ["over", *SETTING])
    table = table.rename(columns={"over": "method", "mean": "gain"})
    return table.astype({PAIRS: "Int64"})


def average_with_intervals(scores: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return a row per group: the mean accuracy, its 95 % interval, and how many there are.

    The mean is missing if a run of the group diverged.
    """
    rows = [
        (*key, of.mean(skipna=False), *verdicts.confidence_interval(of.to_numpy()), len(of))
        for key, of in scores.groupby(by, sort=False)["accuracy"]
    ]
    table = pd.DataFrame(rows, columns=[*by, "mean", "low", "high", PAIRS])
    return table.astype(dict.fromkeys(("mean", "low", "high"), float))


def join_printed(table: pd.DataFrame, study: Study, suffix: str) -> pd.DataFrame:
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


def join_means(scores: pd.DataFrame, pairs: dict[str, str]) -> pd.DataFrame:
    means = mean_over_seeds(scores, CELL)
    original = means[means["method"].isin(pairs)]
    original = original.rename(columns={"mean": "original", "std": "original_std"})
    back = {changed: original for original, changed in pairs.items()}
    changed = means[means["method"].isin(back)].replace({"method": back})
    changed = changed.rename(columns={"mean": "changed", "std": "changed_std"})
    changed = changed[[*CELL, "changed", "changed_std", "diverged", "seeds"]]
    table = original.merge(changed, on=CELL, suffixes=("", "_changed"))
    return table.merge(compute_gains(scores, pairs), on=CELL)


def list_printed_only(
    study: Study, name: str | None, suffix: str, datasets: pd.Series
) -> pd.DataFrame:
    published = study.get("published", {})
    asked = {name: published[known("published table", name, published)]} if name else {}
    cells = list_printed_pairs({**study, "published": asked}, suffix)
    cells = cells[~cells["dataset"].isin(datasets)]
    order = cells.groupby(SETTING, sort=False).ngroup().argsort(kind="stable")
    return cells.iloc[order]


def wide(table: pd.DataFrame, suffix: str, placebo: str | None = None) -> pd.DataFrame:
    columns = {
        "original": write_accuracies(table, "original", ""),
        f"with {suffix}": write_accuracies(table, "changed", "_changed"),
        "gain [95 %]": write_gains(table, ""),
    }
    if placebo:
        columns[f"gain of {placebo} [95 %]"] = write_gains(table, "placebo_")
    heads = {"original": "original", "changed": f"with {suffix}", "gain": "gain"}
    for name, head in heads.items():
        form = "{:+.2f}" if name == "gain" else "{:.2f}"
        columns[f"printed {head}"] = write_numbers(table[f"printed_{name}"], form)
    for name, head in heads.items():
        columns[f"ours - printed, {head}"] = write_numbers(table[f"{name}_difference"], "{:+.2f}")
    names = tables.name_rows(table, tables.is_in_heading(table, "protocol"), AXES)
    filled = {name: texts for name, texts in columns.items() if texts.any()}
    return names.assign(**filled).set_index([*names])


def write_accuracies(table: pd.DataFrame, name: str, suffix: str) -> pd.Series:
    """Write mean and deviation over seeds, or how many runs diverged.

    If the original and the changed method have different numbers of seeds, the number follows.
    `suffix` ends the names of the columns `diverged` and `seeds`.
    """
    columns = {name: "mean", f"{name}_std": "std"}
    columns |= {f"diverged{suffix}": "diverged", f"seeds{suffix}": "seeds"}
    facts = table[[*columns]].rename(columns=columns).fillna({"diverged": 0})
    differ = table["seeds"].notna() & (table["seeds"] != table["seeds_changed"])
    return tables.write_means(facts, differ)


def write_gains(table: pd.DataFrame, prefix: str) -> pd.Series:
    """Write gains with their intervals; `prefix` begins the names of their columns."""
    columns = [f"{prefix}{name}" for name in (*GAIN, PAIRS)]
    most = table[["seeds", "seeds_changed"]].max(axis="columns")
    rows = table[columns].assign(most=most).itertuples(index=False)
    return pd.Series([write_gain(*row) for row in rows], table.index)


def write_gain(gain: float, low: float, high: float, pairs: int, seeds: int) -> str:
    """Write a gain with its interval, and the number of pairs if it differs from that of seeds.

    One seed has no interval. Without a gain the text is empty.
    """
    text = tables.write_interval(gain, low, high, sign="+")
    if not text or pairs == seeds:
        return text
    return f"{text} of {pairs:.0f} pair{'s' if pairs != 1 else ''}"


def caption(table: pd.DataFrame) -> str:
    ours = table[table["seeds"].notna()]
    beside = " Beside them are the printed values." * bool(table["printed_gain"].notna().any())
    return (
        f"The {tables.describe_score(ours)} in percent, mean ± standard deviation over seeds, and "
        "gains in points with their 95 % intervals over pairs of runs: "
        f"{tables.describe_scope(ours)}.{beside}"
    )
