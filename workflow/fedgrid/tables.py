"""What tables and figures have in common: what a run counts with, means over seeds, pairs of runs.

A run counts, by its protocol's metric, with an accuracy in percent: the mean of the evaluations in
its last `tail` rounds, the best, or the last when they are smoothed over rounds. A run that
diverged counts with no number, and takes its mean along: nothing is averaged over a missing run.
"""

import numpy as np
import pandas as pd

from fedgrid.names import UsageError, listed
from fedgrid.spec import skew

SETTING = ["protocol", "dataset", "partition"]
ACCURACY = "{mean:.2f} ± {std:.2f}"  # how a cell is written, and ...
LOST = "{diverged:g}/{seeds:g} lost"  # ... one with runs that diverged
CELL = ["method", "dataset", "partition", "protocol"]
MAKERS = ["device", "threads", "torch", "code"]  # what runs were made with
SMOOTHING = 0.6  # what a moving average keeps of itself; FedNTD's authors say they report this


def scores(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per run: what it counts with in percent, its last round's accuracy, the smoothed one.

    `runs` has a row per run and evaluation, accuracy in 0..1, as `fedgrid.collect` writes it. A run
    that diverged has no accuracies; its `ended` is the round after which it did.
    """
    in_tail = (runs["round"] > runs["rounds"] - runs["tail"]) | runs["diverged"]
    whole = runs.assign(counted=runs["accuracy"].where(in_tail))
    found = whole.groupby([*CELL, "seed"], sort=False).agg(
        mean=("counted", "mean"),
        best=("accuracy", "max"),
        final=("accuracy", "last"),
        smoothed=("accuracy", smoothed),
        ended=("round", "last"),
        diverged=("diverged", "any"),
        metric=("metric", "first"),
        rounds=("rounds", "first"),
        tail=("tail", "first"),
    )
    counts = found.pop("mean").mask(found["metric"] == "best", found.pop("best"))
    found.insert(0, "accuracy", counts.mask(found["metric"] == "smoothed", found["smoothed"]))
    percents = ["accuracy", "final", "smoothed"]
    found[percents] = (100 * found[percents]).mask(found["diverged"])
    return found.reset_index()


def smoothed(accuracies: pd.Series) -> float:
    """The last exponential moving average of evaluations, which begins with the first of them."""
    return accuracies.ewm(alpha=1 - SMOOTHING, adjust=False).mean().iloc[-1]


def over_seeds(means: pd.DataFrame, by: list[str], value: str = "accuracy") -> pd.DataFrame:
    """Mean, sample standard deviation and number of seeds of `value` for every group of runs."""
    return means.groupby(by, sort=False).agg(
        mean=(value, whole_mean),
        std=(value, lambda a: a.std(skipna=False)),
        seeds=("seed", "nunique"),
        diverged=("diverged", "sum"),
        rounds=("rounds", "first"),
        metric=("metric", "first"),
        tail=("tail", "first"),
    ).reset_index()  # fmt: skip


def paired(means: pd.DataFrame, method: str, over: list[str]) -> pd.DataFrame:
    """A row per setting, seed and other method: accuracy of `method` minus the other's, in points.

    Runs of a seed share partition, cohorts and initial weights: their difference is a pair's.
    UsageError if there are no such pairs.
    """
    keys = [*SETTING, "seed"]
    ours = means.loc[means["method"] == method, [*keys, "accuracy", "diverged"]]
    theirs = means[means["method"].isin(over)].rename(columns={"method": "over"})
    pairs = theirs.merge(ours, on=keys, suffixes=("", "_ours"))
    if pairs.empty:
        there = ", ".join(means["method"].unique())
        raise UsageError(
            f"this needs runs of {method} and of {' or '.join(over)}: there is {there}"
        )
    difference = pairs["accuracy_ours"] - pairs["accuracy"]
    return pairs.assign(accuracy=difference, diverged=pairs["diverged"] | pairs["diverged_ours"])


def with_alpha(table: pd.DataFrame) -> pd.DataFrame:
    """With the Dirichlet concentration of every partition that has one, beside its name."""
    table, drawn = table.copy(), table["partition"].map(skew)
    alpha = [number if kind == "dir" else np.nan for kind, number in drawn]
    table.insert(table.columns.get_loc("partition") + 1, "alpha", alpha)
    return table


def written(partition: str) -> str:
    """A partition as papers write it: alpha=0.05 or s=2; anything else as it is."""
    for kind, letter in (("dir", "alpha"), ("shards", "s")):
        number = str(partition).removeprefix(kind)
        if number != partition and number.replace(".", "").isdigit():
            return f"{letter}={number}"
    return partition


def published_cells(study: dict) -> pd.DataFrame:
    """A row per cell of the study's published tables: percent, deviation and speed-up if printed.

    Cells that several tables show are there once. `as_protocol` is empty for those of the study's
    main setting.
    """
    rows = [
        (method, *(*column, "")[:3], *(value if isinstance(value, list) else (value, None)), faster)
        for table in study.get("published", {}).values()
        for method, values in table.get("rows", {}).items()
        for column, value, faster in zip(
            table["columns"], values, sooner(table, method), strict=True
        )
    ]
    keys = ["method", "dataset", "partition", "as_protocol"]
    columns = [*keys, "published", "published_std", "published_speedup"]
    cells = pd.DataFrame(rows, columns=columns)
    cells = cells.astype(dict.fromkeys(("published", "published_std"), float))
    return cells.groupby(keys, sort=False, as_index=False).first()


def sooner(table: dict, method: str) -> list:
    """The published speed-ups of a method, or as many that are missing."""
    return table.get("speedups", {}).get(method) or [None] * len(table["columns"])


def beside_published(table: pd.DataFrame, study: dict) -> pd.DataFrame:
    """Cells by method and setting with what is published of them, where something is.

    Published columns without a protocol are of the protocols that the study calls `main`, or of all
    but those that other columns name.
    """
    cells, protocols = published_cells(study), table["protocol"]
    named = protocols.isin(cells["as_protocol"])
    main = protocols.isin(listed(study["main"])) if "main" in study else ~named
    as_protocol = protocols.where(named).mask(main, "")
    keys = ["method", "dataset", "partition", "as_protocol"]
    return (
        table.assign(as_protocol=as_protocol)
        .merge(cells, how="left", on=keys)
        .drop(columns="as_protocol")
    )


def beside_reference(table: pd.DataFrame, study: dict) -> pd.DataFrame:
    """Cells with the mean over seeds of the runs that were committed with the study, if any."""
    means = kept(study)[[*CELL, "mean"]].rename(columns={"mean": "reference"})
    return table.merge(means, how="left", on=CELL)


def kept(study: dict) -> pd.DataFrame:
    """A row per cell of the runs that were committed with the study: means over seeds, makers."""
    columns = ["accuracy", "final", "smoothed", "rounds", "tail", "seconds_per_round"]
    names = [*CELL, "seed", *columns, "metric", *MAKERS]
    runs = pd.DataFrame(study.get("reference", []), columns=names)
    runs[columns] = runs[columns].apply(pd.to_numeric)  # a run that diverged has no accuracy
    means = {"mean": "accuracy"} | {n: n for n in ("final", "smoothed", "seconds_per_round")}
    over_seeds = {name: (column, whole_mean) for name, column in means.items()}
    facts = {name: (name, "first") for name in ("rounds", "metric", "tail", *MAKERS)}
    found = runs.groupby(CELL, sort=False).agg(seeds=("seed", "nunique"), **over_seeds, **facts)
    return found.reset_index()


def whole_mean(values: pd.Series) -> float:
    """The mean; missing if a value is."""
    return values.mean(skipna=False)


def wide(
    table: pd.DataFrame, form: str = ACCURACY, lost: str = LOST, index: str = "method"
) -> pd.DataFrame:
    """A row per `index`, a column per dataset and partition, as text; `lost` for diverged cells."""
    facts = table.to_dict("records")
    text = [(lost if cell["diverged"] else form).format(**cell) for cell in facts]
    text = [one.replace(" ± nan", "") for one in text]  # one seed has no deviation
    named = table.assign(cell=text, partition=table["partition"].map(written))
    axes = [name for name in ("method", "protocol", "dataset", "partition") if name != index]
    columns = [name for name in axes if varies(named, name)]
    rows, order = named[index].unique(), named.set_index(columns).index.unique()
    cells = named.pivot(index=index, columns=columns, values="cell")
    return cells.reindex(index=rows, columns=order)


def varies(table: pd.DataFrame, name: str) -> bool:
    """Whether an axis belongs in the heading: methods and protocols if a dataset has several."""
    several = bool((table.groupby("dataset")[name].nunique() > 1).any())
    return several or name in ("dataset", "partition")


def each(table: pd.DataFrame, name: str) -> str:
    """The values of a column, for a sentence: `2 or 3`."""
    values = dict.fromkeys(table[name].dropna())
    return " or ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)


COUNTED = {
    "best": "best test accuracy over all rounds",
    "smoothed": "last moving average of test accuracies",
    "tail": "mean accuracy of the last {} rounds",
}


def counted(table: pd.DataFrame) -> str:
    """What the runs behind a product count with."""
    ways = (COUNTED[metric].format(each(table, "tail")) for metric in table["metric"].unique())
    return " or ".join(ways)


def scope(table: pd.DataFrame) -> str:
    """What the runs behind a product are, so that nobody takes a quick one for the paper's."""
    seeds, scale = each(table, "seeds"), each(table, "scale")
    return f"{seeds} seed{'s' * (seeds != '1')}, {each(table, 'rounds')} rounds, {scale} scale"


def spread(values: pd.Series) -> float:
    """The interquartile range."""
    return float(np.subtract(*np.percentile(values, [75, 25])))
