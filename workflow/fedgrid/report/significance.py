"""Differences between methods, and whether chance explains them: over seeds and over cells.

A cell is a dataset, partition and protocol. In each cell the runs of a seed form a pair, and
Student's paired t-test is over these. Over cells it is Wilcoxon's signed-rank test of the cells'
mean differences (Demšar, JMLR 2006), which does not take them for normal. Holm's correction is for
the number of tests in the table, apart for the t-tests of all cells and for the tests over cells.
Intervals are not corrected.

A single pair has no p-value, nor have equal differences other than 0: their deviation is not known.
A cell with a run that diverged has no difference, and then there is none over cells either.
"""

import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from fedgrid.analysis import figures, looks, metrics, tables
from fedgrid.analysis.inference import correct_by_holm
from fedgrid.analysis.scores import SCORED, score_runs
from fedgrid.analysis.verdicts import LEVEL, confidence_interval
from fedgrid.partitions import write_label
from fedgrid.report._texts import count
from fedgrid.runtime.names import NothingToDrawError, in_words, known, registered
from fedgrid.study.records import Study

OPTIONS = {"metric": "metric"}  # what they name (study/options.py)
CELL = ["dataset", "partition", "protocol"]
PAIR = ["method", "over"]
T_TEST, WILCOXON = "paired t-test over seeds", "signed-rank test over cells"
OVERALL = "all cells"
TALL = 8.5  # inches of the panels of a page, at most
LEAST = 2  # differences that have a p-value
run_t_test = partial(stats.ttest_1samp, popmean=0)


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    metric: str = "accuracy",
    baseline: str | None = "fedavg",
) -> pd.DataFrame:
    """Return a row per pair of methods and cell, and one over all cells if there are several.

    A method is compared with the baseline, or with `baseline: null` with each method before it.
    """
    scores = score_runs(runs, metric).rename(columns={metric: "score"})
    pairs = list_pairs([*scores["method"].unique()], baseline)
    rows = [row for pair in pairs for row in compare_pair(scores, *pair)]
    if not rows:
        methods = "two methods" if baseline is None else f"{baseline} and another method"
        raise NothingToDrawError(f"this needs runs of {methods} with the same seeds in a cell")
    table = pd.DataFrame(rows)
    table["p_holm"] = table.groupby("test")["p"].transform(correct_by_holm)
    figures.add_labels(table, study, (*PAIR, "dataset", "protocol"))
    rounded = dict.fromkeys(("difference", "low", "high"), 4)
    return table.assign(of=metric, scale=scale).round(rounded)


# -- tests ----------------------------------------------------------------------------------------


def list_pairs(methods: list[str], baseline: str | None) -> list[tuple[str, str]]:
    """Return the pairs of methods that are compared; the second one is subtracted."""
    if baseline is None:
        return [(later, earlier) for earlier, later in combinations(methods, 2)]
    known("method of these runs", baseline, {*methods, *registered("methods")})
    return [(method, baseline) for method in methods if method != baseline]


def compare_pair(scores: pd.DataFrame, method: str, over: str) -> Iterator[dict]:
    """Yield a row per cell that has runs of both methods, and one over these cells."""
    theirs = scores.loc[scores["method"] == over, [*CELL, "seed", "score"]]
    pairs = scores[scores["method"] == method].merge(theirs, on=[*CELL, "seed"])
    pairs = pairs.assign(apart=pairs["score_x"] - pairs["score_y"])
    facts = [name for name in SCORED if name in pairs]
    means, names = [], {"method": method, "over": over}
    for cell, rows in pairs.groupby(CELL, sort=False):
        row = describe_sample(rows["apart"].to_numpy(), T_TEST, run_t_test)
        means.append(row["difference"])
        yield names | dict(zip(CELL, cell, strict=True)) | row | rows[facts].iloc[0].to_dict()
    if len(means) >= LEAST:
        yield names | describe_sample(np.array(means), WILCOXON, stats.wilcoxon)


def describe_sample(apart: np.ndarray, test: str, run: Callable) -> dict:
    """Describe differences: their mean with its interval, p, and how many there are.

    `run` is a two-sided test that the differences are about 0. What a single difference, equal ones
    or missing ones do not tell is missing.
    """
    spread = len(apart) >= LEAST and np.isfinite(apart).all()
    spread = spread and (len({*apart.round(10)}) > 1 or not apart.any())
    low, high = confidence_interval(apart) if spread else (np.nan, np.nan)
    p = float(run(apart).pvalue) if spread and apart.any() else 1.0 if spread else np.nan
    numbers = {"difference": apart.mean(), "low": low, "high": high, "p": p}
    return numbers | {"pairs": len(apart), "test": test}


# -- forms ----------------------------------------------------------------------------------------


def wide(table: pd.DataFrame) -> pd.DataFrame:
    ends = table.rename(columns={"low": "difference_low", "high": "difference_high"})
    texts = tables.write_intervals(ends, "difference", "p_holm")
    names = table["dataset_label"] + " " + table["partition"].map(write_label, na_action="ignore")
    if tables.has_several(table):
        names = names + " " + table["protocol"]
    shown = table.assign(where=names.fillna(OVERALL), text=texts)
    index = ["method_label", "over_label"] if table["over"].nunique() > 1 else ["method_label"]
    columns = sorted(shown["where"].unique(), key=lambda name: name != OVERALL)
    rows = shown.set_index(index).index.unique()
    cells = shown.pivot(index=index, columns="where", values="text").reindex(rows, columns=columns)
    named = [name.removesuffix("_label") for name in index]
    return cells.fillna("").rename_axis(columns=None, index=named)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw the differences of each pair: grey in cells, in the method's colour over them.

    Pairs that are too many for a panel of a page have two panels.
    """
    look = looks.list_looks(table["method"], study)
    groups = [rows for _, rows in table.groupby(PAIR, sort=False)]
    height = 0.7 + 0.1 * len(groups) + 0.06 * len(table)
    columns = 1 + (height > TALL)
    width = figures.PAGE["text"] / 2
    size = -(-len(groups) // columns)
    shown = -(-columns // figures.find_fit(columns, width, width)[1])  # rows of panels
    height = min(height / columns, TALL / shown)
    figure, (row,) = figures.panels(1, columns, width, height, sharex=True, least=width)
    for at, axes in enumerate(row):
        plot_pairs(axes, groups[at * size : (at + 1) * size], look, table["over"].nunique() > 1)
        axes.set_xlabel(write_difference(table))
    figures.explain_signs(figure, list_signs(table))
    return figure


def plot_pairs(axes: Axes, groups: list[pd.DataFrame], look: dict, several: bool) -> None:
    """Draw pairs one below the other; with `several` others, both methods are named."""
    for place, rows in enumerate(groups):
        plot_pair(axes, place, rows, look[rows["method"].iloc[0]]["color"])
    firsts = [rows.iloc[0] for rows in groups]
    others = [f" \N{MINUS SIGN} {first['over_label']}" * several for first in firsts]
    names = [first["method_label"] + other for first, other in zip(firsts, others, strict=True)]
    axes.set_yticks(range(len(groups)), names)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.axvline(0, color="0.5", linewidth=0.8, zorder=0)


def write_difference(table: pd.DataFrame) -> str:
    others = table["over_label"].unique()
    over = "" if len(others) > 1 else f" to {others[0]}"
    words = metrics.describe_metric(table["of"].iloc[0])
    return textwrap.fill(f"difference of the {words}{over}{write_points(table)}", 28)


def list_signs(table: pd.DataFrame) -> dict[str, tuple[bool, dict]]:
    """List the signs of the figure: whether a table has each, and its look."""
    overall, mark = bool((table["test"] == WILCOXON).any()), {"marker": "o", "markersize": 4}
    hollow = mark | {"markerfacecolor": "white"}
    return {
        "a cell": (overall, hollow | {"color": looks.PALE}),
        "over cells (colour of the method)": (overall, hollow | {"color": looks.BLACK}),
        f"corrected p below {LEVEL:g}": (True, mark | {"color": looks.BLACK}),
    }


def plot_pair(axes: Axes, place: int, rows: pd.DataFrame, of_method: str) -> None:
    for at, row in enumerate(rows.to_dict("records")):
        main = at == len(rows) - 1  # the row over cells is the last one
        colour = of_method if main else looks.PALE
        y = place + 0.7 * ((at + 0.5) / len(rows) - 0.5)
        found = row["p_holm"] < LEVEL
        axes.hlines(y, row["low"], row["high"], color=colour, linewidth=1.2 if main else 0.6)
        axes.plot(
            row["difference"], y, "o", color=colour, markersize=4,
            markerfacecolor=colour if found else "white",
            label=row["method_label"] if main else None,
        )  # fmt: skip


def write_points(table: pd.DataFrame) -> str:
    return " (points of percent)" * metrics.in_percent(table["of"].iloc[0])


def caption(table: pd.DataFrame) -> str:
    score = tables.describe_score(table)
    others = " or ".join(dict.fromkeys(table["over_label"]))
    lost = [*table.loc[table["difference"].isna(), "method_label"].drop_duplicates()]
    missing = f" A run diverged in a comparison of {in_words(lost)}." if lost else ""
    return (
        f"Differences of the {score}{write_points(table)} to {others}, with 95 % intervals. In "
        f"each cell {describe_test(table, T_TEST, 'seed')}{describe_cells(table)}. Each p is "
        "corrected by Holm for the tests of its kind. In the figure, cells are grey, the last mark "
        f"of a method has its colour, and filled marks have a p below {LEVEL:g}: "
        f"{tables.join_values(table, 'scale')} scale.{missing}"
    )


def describe_test(table: pd.DataFrame, test: str, of: str) -> str:
    rows = table[table["test"] == test]
    nothing = " (empty where it cannot be had)" * bool(rows["p"].isna().any())
    return f"p is of the {test.partition(' over ')[0]} over {count(rows, 'pairs', of)}{nothing}"


def describe_cells(table: pd.DataFrame) -> str:
    cells = table.loc[table["test"] == WILCOXON, "pairs"]
    if cells.empty:
        return ""
    least = 2.0 ** (1 - cells.max())
    return f"; over cells {describe_test(table, WILCOXON, 'cell')}, at least {least:.2g}"
