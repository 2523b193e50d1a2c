"""Finished runs that are kept with the study, beside the published values. It needs no new run.

`python -m fedgrid keep --runs` writes the study's file of these runs; the study's notes say how
they were made. If the study keeps curves of several origins (`curves`), such as those of a paper's
own code, the figure shows them: accuracies, their moving averages, and the published value. Only
those cells (method, dataset, partition, protocol) are compared that all origins have.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid.analysis import figures, metrics, tables
from fedgrid.analysis.looks import GREY
from fedgrid.analysis.published import average_kept_runs, join_published, list_sources
from fedgrid.analysis.scores import CELL, SMOOTHING, moving_average
from fedgrid.partitions import write_label
from fedgrid.report._panels import draw_panels
from fedgrid.report._texts import count
from fedgrid.study.records import Study

WHOLE = ["seeds", "rounds", "tail", "seed", "round"]  # columns of whole numbers, or empty
BLOCK = 20  # rounds whose mean accuracies are compared
CURVE = ["curve", *CELL, "seed"]
NUMBERS = ["seed", "round", "accuracy"]
SAID = (
    "{curve} (seed {seed:g}) has {best:.2f} at best, after round {best_round:g}, {last:.2f} after "
    "the last round, and {average:.2f} as its last moving average"
)
LATE = 3  # the last blocks of rounds, of which the caption has a mean of their own


def draw(study: Study, scale: str) -> pd.DataFrame:
    """Return a row per cell of kept runs, and after them a row per evaluation of kept curves.

    A cell has percent over seeds, published percent, seconds, machine and code. An evaluation has
    the name of its `curve`, its round, accuracy and moving average in percent.
    """
    table = join_published(average_kept_runs(study), study)
    table = table.drop(columns=["published_std", "published_speedup"])
    table = table.assign(difference=table["mean"] - table["published"])
    table = pd.concat([table, read_curves(study)], ignore_index=True)
    figures.add_labels(table, study, ("method", "dataset"))
    return table.astype(dict.fromkeys(WHOLE, "Int64")).round(4)


# -- curves of several origins ---------------------------------------------------------------------


def read_curves(study: Study) -> pd.DataFrame:
    """Return a row per evaluation: accuracy and moving average in percent, published percent.

    The column `curve` has the name of the origin. Cells that an origin lacks are left out, and so
    are rounds without an accuracy.
    """
    rows = [
        row | {"curve": name}
        for name, evaluations in study.get("curves", {}).items()
        for row in evaluations
    ]
    table = pd.DataFrame(rows, columns=[*CURVE, "round", "accuracy"])
    table[NUMBERS] = table[NUMBERS].apply(pd.to_numeric)
    table = table.dropna(subset="accuracy")
    origins = table.groupby(CELL)["curve"].transform("nunique")
    table = table[origins == len(study.get("curves", {}))]
    curve = table.groupby(CURVE, sort=False).ngroup()  # in the order of the study's files
    table = table.assign(at=curve).sort_values(["at", "round"], kind="stable").drop(columns="at")
    averages = table.groupby(CURVE)["accuracy"].transform(moving_average)
    table = join_published(table.assign(average=averages), study)
    return table.drop(columns=["published_std", "published_speedup"])


def summarise_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Return a row per curve: its best accuracy and that round, its last accuracy and average."""
    best = curves.loc[curves.groupby(CURVE)["accuracy"].idxmax(), [*CURVE, "round", "accuracy"]]
    last = curves.groupby(CURVE, sort=False).agg(
        last=("accuracy", "last"), average=("average", "last"), published=("published", "first")
    )
    best = best.rename(columns={"accuracy": "best", "round": "best_round"})
    return last.reset_index().merge(best, on=CURVE)


def compare_blocks(curves: pd.DataFrame) -> pd.DataFrame:
    """Average the first origin's accuracy minus each other's over blocks of BLOCK rounds.

    Only rounds that both origins have count, without round 0; the column `block` counts from 0.
    """
    keys = [*CELL, "round"]
    means = curves.groupby(["curve", *keys], sort=False)["accuracy"].mean().reset_index()
    ours = means["curve"].isin(means["curve"].head(1))
    pairs = means[ours].merge(means[~ours], on=keys, suffixes=("", "_other"))
    pairs = pairs[pairs["round"] > 0]
    gap = pairs["accuracy"] - pairs["accuracy_other"]
    block = (pairs["round"].astype(int) - 1) // BLOCK
    grouped = pairs.assign(difference=gap, block=block).groupby(["curve_other", *CELL, "block"])
    return grouped["difference"].mean().reset_index()


# -- for readers ----------------------------------------------------------------------------------


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per cell with its protocol; variants of a protocol share a published value."""
    table = table[table["curve"].isna()]
    shown = pd.DataFrame({
        "method": table["method_label"], "dataset": table["dataset_label"],
        "partition": table["partition"].map(write_label), "protocol": table["protocol"],
        "seeds": table["seeds"].astype(int), "published": table["published"],
        **{name: table[name] for name in list_sources(table)},
        "ours": table["mean"],
        "difference": table["difference"].map("{:+.2f}".format, na_action="ignore"),
        "last round": table["final"], "smoothed": table["smoothed"],
        "s/round": table["seconds_per_round"].map("{:.0f}".format),
    })  # fmt: skip
    return shown.round(2).set_index("method")


def plot(table: pd.DataFrame, study: Study) -> Figure:
    table = table[table["curve"].notna()]
    size = {"width": 2 * figures.WIDTH, "height": 1.5 * figures.HEIGHT}
    figure, grid, panels = draw_panels(table, CELL, [], **size)
    look = figures.colours(table["curve"])
    for axes, _, part in panels:
        for (curve, _), line in part.groupby(["curve", "seed"], sort=False):
            colour = look[curve]
            axes.plot(line["round"], line["accuracy"], color=colour, lw=0.6, alpha=0.5)
            axes.plot(line["round"], line["average"], color=colour, lw=1.6, label=curve)
        axes.plot([], [], color=GREY, lw=0.6, label="each evaluation")
        for value in part["published"].dropna().unique():
            axes.axhline(value, color="0.3", ls="--", lw=0.8, label=f"published: {value:.2f}")
        axes.set(title=write_title(part), ylabel=tables.write_axis_label(part))
    figures.name_rounds(grid[-1])
    figures.legend(figure, figure.axes, columns=3)
    return figure


def write_title(table: pd.DataFrame) -> str:
    """Write the title of a cell: `FedAvg, CIFAR-10, alpha=0.05`."""
    first = table.iloc[0]
    return f"{first['method_label']}, {first['dataset_label']}, {write_label(first['partition'])}"


def caption(table: pd.DataFrame) -> str:
    runs, evaluations = table[table["curve"].isna()], table[table["curve"].notna()]
    smoothed = bool(runs["smoothed"].notna().any())
    average = tables.COUNTED["smoothed"].format(words=metrics.describe_metric("accuracy"))
    beside = "published values" + f" and the {average}" * smoothed
    kept = (
        f"The {tables.describe_score(runs)} in percent of the runs kept with the study "
        f"({count(runs, 'seeds', 'seed')}, {tables.join_values(runs, 'rounds')} rounds, on "
        f"{tables.join_values(runs, 'device')}), beside {beside}."
    )
    return " ".join([kept, *describe_curves(evaluations)])


def describe_curves(evaluations: pd.DataFrame) -> list[str]:
    sentences = []
    gaps = compare_blocks(evaluations)
    for cell, part in evaluations.groupby(CELL, sort=False):
        numbers = [SAID.format(**row) for row in summarise_curves(part).to_dict("records")]
        sentences.append(f"Curves of {write_title(part)}: {'; '.join(numbers)}.")
        here, first = (gaps[CELL] == [*cell]).all(axis="columns"), part["curve"].iloc[0]
        for other, gap in gaps[here].groupby("curve_other"):
            differences = gap["difference"]  # in the order of the blocks
            sentences.append(
                f"Means of {BLOCK} rounds of {first} minus those of {other}: "
                f"{differences.min():+.2f} to {differences.max():+.2f}, on average "
                f"{differences.mean():+.2f}, and {differences.tail(LATE).mean():+.2f} in the last "
                f"{LATE * BLOCK} rounds."
            )
    keeps = "In the figure, thick lines are moving averages, which keep {:g} of themselves."
    return [*sentences, keeps.format(SMOOTHING)] if sentences else []
