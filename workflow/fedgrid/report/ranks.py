"""Methods in the order of their ranks: each with its best candidate, chosen on validation data.

In each cell, a dataset, partition and setting, the tuned methods are ranked by their mean score on
test data; the best has rank 1, and equal ones share their mean rank. Placebos and methods outside
the comparison have no rank. Friedman's test says whether the mean ranks differ by more than chance,
and two methods differ if their mean ranks are further apart than Nemenyi's critical difference
(Demšar, JMLR 2006). With few cells both tests find little.

The difference to the baseline and to a method's placebo is taken seed by seed in each cell.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from fedgrid.analysis import choice, figures, looks, metrics, tables
from fedgrid.analysis.verdicts import confidence_interval
from fedgrid.partitions import write_label
from fedgrid.runtime.names import UsageError, in_words, known, listed, registered
from fedgrid.study.records import Study

OPTIONS = {"over": "field", "metric": "metric"}  # what they name (study/options.py)
CELL = ["dataset", "partition", "setting"]
LEVEL = 0.05  # of Nemenyi's test
PANEL = 0.95  # inches
RING: dict[str, Any] = dict(color=looks.PALE, markersize=5, markerfacecolor="white", zorder=1)


def draw(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    study: Study,
    scale: str,
    over: str | list[str] | None = None,
    metric: str = "accuracy",
    baseline: str = "fedavg",
    placebos: dict[str, str] | None = None,
    unranked: list[str] | None = None,
) -> pd.DataFrame:
    """Return a row per family and cell, in the order of mean ranks.

    `over` has fields of the protocol that were tuned, too; `placebos` names a placebo's family for
    that of a method; families in `unranked` are shown without a rank.
    """
    deciding = metrics.validation_of(metric)
    choice.check_validation(runs, deciding)
    scores = choice.choose_candidates(runs, settings, listed(over), metric, deciding)
    families, others = [*dict.fromkeys(scores["family"])], placebos or {}
    for name in (baseline, *(unranked or ())):
        known("family of methods of these runs", name, families)
    for name in (*others, *others.values()):  # a part of the grid may lack them
        parts = [name] if name in families else name.split("+")
        for part in parts:
            known("method in `placebos`", part, {*families, *registered("methods")})
    left_out = {*others.values(), *(unranked or ())}
    rows = [
        row for _, cell in scores.groupby(CELL, sort=False)
        for row in describe_cell(cell, metric, baseline, others, left_out)
    ]  # fmt: skip
    table = add_tests(pd.DataFrame(rows))
    for axis, name in {"method": "family", "dataset": "dataset"}.items():
        table[f"{name}_label"] = [figures.label(study, value, axis) for value in table[name]]
    rounded = {name: 4 for name in table if name != "p"}
    return table.assign(of=metric, scale=scale).round(rounded)


# -- rows -----------------------------------------------------------------------------------------


def describe_cell(
    cell: pd.DataFrame, metric: str, baseline: str, placebos: dict[str, str], left_out: set[str]
) -> Iterator[dict]:
    """Yield a row per family of a cell: what was chosen, its score, rank and differences."""
    of_seeds = {name: runs.set_index("seed")[metric] for name, runs in cell.groupby("family")}
    means = pd.Series({name: own.mean(skipna=False) for name, own in of_seeds.items()})
    ranked = means.drop([name for name in means.index if name in left_out])
    ranks = ranked.rank(ascending=metrics.lower_is_better(metric), na_option="bottom")
    for name, runs in cell.groupby("family", sort=False):
        first = runs.iloc[0]
        yield {
            "family": name,
            **first[[*CELL, *choice.CHOSEN]].to_dict(),
            "mean": means[name],
            "std": of_seeds[name].std(skipna=False),
            "seeds": runs["seed"].nunique(),
            "diverged": int(runs["diverged"].sum()),
            "rank": ranks.get(name, np.nan),
            **subtract("gain", of_seeds, name, baseline),
            **subtract("beyond_placebo", of_seeds, name, placebos.get(name)),
        }


def subtract(
    column: str, of_seeds: dict[str, pd.Series], name: str, other: str | None
) -> dict[str, float]:
    """Return the mean difference to another family over seeds, with its 95 % interval."""
    if other == name or other not in of_seeds:
        return dict.fromkeys((column, f"{column}_low", f"{column}_high"), np.nan)
    apart = (of_seeds[name] - of_seeds[other]).to_numpy()
    known_spread = len(apart) > 1 and np.isfinite(apart).all()
    low, high = confidence_interval(apart) if known_spread else (np.nan, np.nan)
    return {column: float(apart.mean()), f"{column}_low": low, f"{column}_high": high}


def add_tests(table: pd.DataFrame) -> pd.DataFrame:
    """Add mean ranks, Friedman's p-value and the critical difference; order by mean rank."""
    ranks = table.pivot(index=CELL, columns="family", values="rank").dropna(axis=1).rank(axis=1)
    mean = ranks.mean()
    several = len(ranks) > 1 and len(mean) > 2
    p = stats.friedmanchisquare(*ranks.to_numpy().T).pvalue if several else np.nan
    apart = critical_difference(len(mean), len(ranks)) if several else np.nan
    table = table.assign(
        mean_rank=table["family"].map(mean), cells=len(ranks), p=p, critical_difference=apart
    )
    return table.sort_values("mean_rank", kind="stable", na_position="last", ignore_index=True)


def critical_difference(methods: int, cells: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the level 0.05."""
    quantile = stats.studentized_range.ppf(1 - LEVEL, methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * cells)))


# -- forms ----------------------------------------------------------------------------------------


def wide(table: pd.DataFrame, baseline: str = "fedavg") -> pd.DataFrame:
    """Return a row per family: its mean rank, and for each cell its score and its differences.

    What was chosen is in the .csv, and in the product `tuned` beside its validation score.
    """
    head = table.drop_duplicates("family").set_index("family")
    score, over = metrics.describe_metric(table["of"].iloc[0]), find_label(table, baseline)
    shown = {("over cells", "mean rank"): head["mean_rank"].map("{:.2f}".format).replace("nan", "")}
    for name, rows in split_cells(table):
        own = rows.set_index("family")
        facts = own.to_dict("records")
        texts = [tables.write_cell(row, "{mean:.2f}") for row in facts]
        shown[name, score] = pd.Series(texts, own.index)
        shown[name, f"minus {over}"] = write_differences(own, "gain")
        shown[name, "minus its placebo"] = write_differences(own, "beyond_placebo")
    found = pd.DataFrame(shown, head.index).fillna("").set_axis(head["family_label"])
    return found.loc[:, (found != "").any()].rename_axis("method")


def split_cells(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each cell's rows with its name, which has the setting if there are several of it."""
    settings = table.groupby(["dataset", "partition"])["setting"].transform("nunique")
    for (_, partition, setting), rows in table.groupby(CELL, sort=False):
        several = f", {setting}" * bool(settings[rows.index[0]] > 1)
        yield f"{rows['dataset_label'].iloc[0]}, {write_label(partition)}{several}", rows


def find_label(table: pd.DataFrame, family: str) -> str:
    """Return the label of a family of the table."""
    return table.loc[table["family"] == family, "family_label"].iloc[0]


def write_differences(rows: pd.DataFrame, column: str) -> pd.Series:
    """Write differences with their intervals; empty where there is none."""
    texts = [
        "" if pd.isna(mean) else tables.write_interval(mean, low, high, sign="+")
        for mean, low, high in rows[[column, f"{column}_low", f"{column}_high"]].to_numpy()
    ]
    return pd.Series(texts, rows.index)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw the mean ranks, the best at the top, and beside them each cell's gains."""
    ranked = table.dropna(subset="mean_rank").drop_duplicates("family")
    if ranked.empty:
        return figures.make_blank()
    cells = [(name, rows) for name, rows in split_cells(table) if rows["gain"].notna().any()]
    height = 0.16 * len(ranked) + 0.9
    figure, ((first, *others),) = figures.panels(
        1, 1 + len(cells), PANEL, height, sharey=True, least=PANEL
    )
    look = looks.list_looks(ranked["family"], study, styles=looks.POINTS, marks=looks.MARKS[1:])
    plot_ranks(first, ranked, look)
    for axes, (name, rows) in zip(others, cells, strict=True):
        own = rows.set_index("family").reindex(ranked["family"])
        plot_gains(axes, own.reset_index().to_dict("records"), look)
        axes.set_title(name.replace(", ", ",\n"))
        axes.set_xlabel("gain")
    return figure


def plot_ranks(axes: Axes, ranked: pd.DataFrame, look: dict[str, dict]) -> None:
    """Draw the mean rank of each family, and shade those that do not differ from the best one."""
    places = range(len(ranked))
    best, apart = (float(ranked[name].iloc[0]) for name in ("mean_rank", "critical_difference"))
    for place, row in zip(places, ranked.itertuples(), strict=True):
        style = look[row.family] | {"markevery": 1, "label": row.family_label}
        axes.plot(row.mean_rank, place, **style)
    axes.hlines(places, 1, ranked["mean_rank"], color="0.85", linewidth=0.8, zorder=0)
    axes.set_yticks(places, ranked["family_label"])
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    axes.set_xlabel("mean rank")
    if np.isfinite(apart):
        axes.axvspan(best, best + apart, color="0.93", zorder=-1, linewidth=0)
        axes.set_xlim(right=len(ranked) + 1)


def plot_gains(axes: Axes, rows: list[dict], look: dict[str, dict]) -> None:
    """Draw each family's gain in a cell with its interval, and its placebo's gain as a ring.

    The axis has all gains of methods; intervals and placebos may go beyond it.
    """
    axes.axvline(0, color="0.5", linewidth=0.8, zorder=0)
    axes.margins(x=0.15)
    for place, row in enumerate(rows):
        style = look[row["family"]] | {"markevery": 1, "markersize": 4}
        axes.plot(row["gain"], place, **style)
    axes.set_xlim(axes.get_xlim())
    for place, row in enumerate(rows):
        colour = look[row["family"]]["color"]
        axes.hlines(place, row["gain_low"], row["gain_high"], color=colour, linewidth=1)
        axes.plot(row["gain"] - row["beyond_placebo"], place, "o", **RING)


def write_cells(count: int) -> str:
    """Write how many cells there are."""
    return "one cell" if count == 1 else f"{count} cells"


def describe_panels(table: pd.DataFrame, baseline: str) -> str:
    """Say what the figure has beside the ranks; empty if it has nothing more."""
    if table["gain"].isna().all():
        return ""
    several = ", with its 95 % interval over seeds" * bool(table["gain_low"].notna().any())
    rings = " A ring is the gain of the method's placebo." * bool(
        table["beyond_placebo"].notna().any()
    )
    over = find_label(table, baseline)
    return f" A gain is the difference to {over} in a cell{several}.{rings}"


def describe_better(table: pd.DataFrame, baseline: str) -> str:
    """Name the methods that are better than the baseline, or than their placebo, in each cell."""
    text, over = "", find_label(table, baseline)
    for name, rows in split_cells(table[table["mean_rank"].notna() & table["gain_low"].notna()]):
        text += f" {name}: {name_better(rows, 'gain')} better than {over}"
        known_beyond = rows["beyond_placebo_low"].notna().any()
        beyond = f", and {name_better(rows, 'beyond_placebo')} better than the placebo"
        text += f"{beyond * bool(known_beyond)}."
    note = " Better means by the whole interval, which is not corrected for the number of methods."
    return text + note * bool(text)


def name_better(rows: pd.DataFrame, column: str) -> str:
    """Name the methods of which the whole interval of a difference is on the better side."""
    lowest = metrics.lower_is_better(rows["of"].iloc[0])
    better = rows[f"{column}_high"] < 0 if lowest else rows[f"{column}_low"] > 0
    names = [*rows.loc[better, "family_label"]]
    return f"{in_words(names or ['no method'])} {'are' if len(names) > 1 else 'is'}"


def caption(table: pd.DataFrame, baseline: str = "fedavg") -> str:
    """Say how methods were tuned and ranked, and what the tests say."""
    if table.empty:
        raise UsageError("there are no runs to rank")
    words = metrics.describe_metric(table["of"].iloc[0])
    deciding = metrics.describe_metric(metrics.validation_of(table["of"].iloc[0]))
    first = table.iloc[0]
    fewest, most = table["candidates"].min(), table["candidates"].max()
    text = (
        f"Ranks by {words}: of each method the candidate with the best mean {deciding}, over "
        f"{write_cells(first['cells'])}, {tables.join_values(table, 'scale')} scale. The best has "
        f"rank 1.{describe_panels(table, baseline)}{describe_better(table, baseline)}"
    )
    if fewest < most:
        text += f" Methods had different numbers of candidates: {fewest} to {most}."
    if pd.isna(first["p"]):
        return f"{text} Ranks are tested from two cells and three methods on."
    return (
        f"{text} Friedman's test: p = {first['p']:.2g}. Mean ranks within "
        f"{first['critical_difference']:.1f} of the best one, shaded, do not differ from it by "
        "Nemenyi's test at 0.05."
    )
