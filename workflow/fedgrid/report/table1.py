"""FedSLS, table 1: test accuracy by method, dataset and alpha, beside the published values.

A run counts with its tail mean: the mean accuracy of the evaluations in its last `tail` rounds
("the average accuracy over the last 200"). A cell is the mean over seeds and the sample standard
deviation. A cell with a diverged run has no mean; it says how many diverged.
"""

import pandas as pd

from fedgrid.spec import alpha

CELL = ["method", "dataset", "partition", "protocol"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per cell: percent, over seeds; published values and differences where there are any.

    `runs` has a row per run and evaluation, accuracy in 0..1; `study` is the study's file.
    """
    table = tail_means(runs).groupby(CELL, sort=False).agg(
        mean=("accuracy", lambda a: a.mean(skipna=False)),
        std=("accuracy", lambda a: a.std(skipna=False)),
        seeds=("accuracy", "size"),
        diverged=("diverged", "sum"),
        rounds=("rounds", "first"),
        tail=("tail", "first"),
    ).reset_index()  # fmt: skip
    table.insert(2, "alpha", table["partition"].map(alpha))
    published = published_values(study.get("published", {}).get("table1", {}))
    table = table.merge(published, how="left", on=["method", "dataset", "partition"])
    table = table.assign(scale=scale, difference=table["mean"] - table["published"])
    return table.round(dict.fromkeys(("mean", "std", "difference"), 4))


def tail_means(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per run: its accuracy in percent, missing if it diverged."""
    last = runs[(runs["round"] > runs["rounds"] - runs["tail"]) | runs["diverged"]]
    means = last.groupby([*CELL, "seed"], sort=False).agg(
        accuracy=("accuracy", "mean"),
        diverged=("diverged", "any"),
        rounds=("rounds", "first"),
        tail=("tail", "first"),
    )
    means["accuracy"] = (100 * means["accuracy"]).mask(means["diverged"])
    return means.reset_index()


def published_values(published: dict) -> pd.DataFrame:
    """A row per published cell."""
    rows = [
        (method, *column, *value)
        for method, values in published.get("rows", {}).items()
        for column, value in zip(published["columns"], values, strict=True)
    ]
    columns = ["method", "dataset", "partition", "published", "published_std"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))


def cells(table: pd.DataFrame, form: str, lost: str) -> pd.DataFrame:
    """A row per method, a column per dataset and alpha, as text; `lost` is for diverged cells."""
    facts = table.to_dict("records")
    text = [(lost if cell["diverged"] else form).format(**cell) for cell in facts]
    wide = table.assign(cell=text, alpha=table["alpha"].map("{:g}".format))
    columns = [name for name in ("protocol", "dataset", "alpha") if varies(wide, name)]
    methods, order = wide["method"].unique(), wide.set_index(columns).index.unique()
    wide = wide.pivot(index="method", columns=columns, values="cell")
    return wide.reindex(index=methods, columns=order)


def varies(table: pd.DataFrame, name: str) -> bool:
    """Whether an axis belongs in the heading: several protocols only if they share a dataset."""
    return name != "protocol" or bool((table.groupby("dataset")["protocol"].nunique() > 1).any())


def text(table: pd.DataFrame) -> str:
    """For a terminal."""
    wide = cells(table, "{mean:.2f} ({std:.2f})", "{diverged}/{seeds} lost")
    return f"{heading(table)}\n\n{wide}".replace(" (nan)", "")  # one seed has no deviation


def tex(table: pd.DataFrame) -> str:
    """For a paper; needs the package booktabs."""
    wide = cells(table, r"${mean:.2f} \pm {std:.2f}$", "{diverged}/{seeds} diverged")
    wide = wide.replace(r" \\pm nan", "", regex=True)  # one seed has no deviation
    return f"% {heading(table)}\n{wide.to_latex(multicolumn_format='c')}"


def heading(table: pd.DataFrame) -> str:
    """What the numbers are, so that nobody takes a quick table for the paper's."""

    def each(name: str) -> str:
        return " or ".join(map(str, table[name].unique()))

    return (
        f"Test accuracy in percent, mean (standard deviation) over {each('seeds')} seeds of the "
        f"mean of the last {each('tail')} of {each('rounds')} rounds; {each('scale')} scale."
    )
