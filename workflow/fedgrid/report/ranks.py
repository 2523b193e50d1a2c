"""Methods in the order of their ranks: each with its best candidate, chosen on validation data.

In each cell, a dataset, partition and setting, the tuned methods are ranked by their mean score on
test data; the best has rank 1, and equal ones share their mean rank. Placebos, controls and methods
outside the comparison have no rank. Friedman's test says whether the mean ranks differ by more than
chance, and two methods differ if their mean ranks are further apart than Nemenyi's critical
difference (Demšar, JMLR 2006). With few cells both tests find little.

The difference to the baseline and to a method's placebo is taken seed by seed in each cell. Whether
chance explains the difference to the baseline is tested in a model of all ranked families of the
cell, with Holm's correction for their number (`analysis/inference.py`). Placebos are not in the
model, because one that harms has a deviation of its own; nor is a family with a run that diverged,
or with other seeds.

Controls are trivial methods that a new one must beat, such as a mean of the server's last models.
The best control of a cell is the one with the best mean score on the same test data. So it is too
good by chance, which favours the control: a method that is better is better than each of them.
"""

import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from fedgrid.analysis import choice, figures, looks, metrics, tables
from fedgrid.analysis.inference import compare_in_blocks, correct_by_holm
from fedgrid.analysis.placebos import NO_CONTROL, decide_verdict
from fedgrid.analysis.scores import RUN, SCORED, score_runs, select_scored
from fedgrid.analysis.verdicts import LEVEL, confidence_interval
from fedgrid.partitions import write_label
from fedgrid.report._texts import count, write_numbers
from fedgrid.runtime.names import UsageError, in_words, known, listed, registered
from fedgrid.study.records import Study

OPTIONS = {"over": "field", "metric": "metric"}  # what they name (study/options.py)
CELL = ["dataset", "partition", "setting"]
TESTS = ("p", "p_holm", "control_p", "control_p_holm", "friedman_p")  # columns
PANEL = 0.95  # inches
RING: dict[str, Any] = dict(marker="o", color=looks.PALE, markersize=5, markerfacecolor="white")
CONTROL: dict[str, Any] = dict(color=looks.PALE, linewidth=0.8, linestyle="--")
BAND: dict[str, Any] = dict(color="0.9", linewidth=7)  # in the legend


class Roles(NamedTuple):
    """Which families others are compared with, and which have no rank."""

    baseline: str
    placebos: dict[str, str]  # by the method's family
    controls: list[str]
    unranked: set[str]  # with all placebos and controls


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
    controls: list[str] | None = None,
    averaged: dict[str, str] | None = None,
) -> pd.DataFrame:
    """Return a row per family and cell, in the order of mean ranks.

    `over` has fields of the protocol that were tuned, too; `placebos` names a placebo's family for
    that of a method; families in `unranked` are shown without a rank. So are `controls`; a method
    among them, such as `moon-mu0`, is a family of its own. `averaged` has new families by name, and
    whose chosen runs they are: they are scored by the mean of the server's last models. A new
    family is left out if no run has this score.
    """
    deciding = metrics.validation_of(metric)
    choice.check_validation(runs, deciding)
    pairs, trivial, new = placebos or {}, listed(controls), averaged or {}
    scores = choice.choose_candidates(runs, settings, listed(over), metric, deciding, trivial)
    families = [*scores["family"].unique(), *new]
    check_names(families, [baseline, *(unranked or ()), *new.values()], pairs, trivial)
    scores = add_averaged(scores, runs, metric, new)
    without_rank = {*pairs.values(), *(unranked or ()), *trivial}
    roles = Roles(baseline, pairs, trivial, without_rank)
    cells = [cell for _, cell in scores.groupby(CELL, sort=False)]
    rows = [row for cell in cells for row in describe_cell(cell, metric, roles)]
    table = add_tests(pd.DataFrame(rows))
    figures.add_labels(table, study, ("family", "dataset"))
    rounded = {name: 4 for name in table if name not in TESTS}
    return table.assign(of=metric, scale=scale).round(rounded)


def check_names(
    families: list[str], needed: list[str], placebos: dict[str, str], controls: list[str]
) -> None:
    """Raise a UsageError for a name in an option that is no family.

    A part of the grid may lack placebos, their methods and controls.
    """
    for name in needed:
        known("family of methods of these runs", name, families)
    possible = {"placebos": [*placebos, *placebos.values()], "controls": controls}
    for option, names in possible.items():
        for part in [part for name in names if name not in families for part in name.split("+")]:
            file = part.partition("-")[0]
            known(f"method in `{option}`", file, {*families, *registered("methods")})


def add_averaged(
    scores: pd.DataFrame, runs: pd.DataFrame, metric: str, averaged: dict[str, str]
) -> pd.DataFrame:
    if taken := {*averaged} & {*scores["family"]}:
        raise UsageError(
            f"`averaged` makes the family {min(taken)}, and these runs have one: write another name"
        )
    column = f"{metrics.AVERAGED}{metric}"
    if column not in runs or runs[column].isna().all():
        return scores
    of_mean = score_runs(select_scored(runs, column), column)[[*RUN, column]]
    parts = [
        scores[scores["family"] == family].merge(of_mean, on=RUN).assign(family=new)
        for new, family in averaged.items()
    ]
    added = [part.assign(**{metric: part[column]}).drop(columns=column) for part in parts]
    return pd.concat([scores, *added], ignore_index=True)


# -- rows -----------------------------------------------------------------------------------------


def describe_cell(cell: pd.DataFrame, metric: str, roles: Roles) -> Iterator[dict]:
    """Yield a row per family of a cell: what was chosen, its score, rank, differences and p."""
    of_seeds = {name: runs.set_index("seed")[metric] for name, runs in cell.groupby("family")}
    means = pd.Series({name: own.mean(skipna=False) for name, own in of_seeds.items()})
    ranked, lowest = means.drop({*means.index} & roles.unranked), metrics.lower_is_better(metric)
    ranks = ranked.rank(ascending=lowest, na_option="bottom")
    trivial = means.reindex(roles.controls).dropna().sort_values(ascending=lowest, kind="stable")
    control = "" if trivial.empty else str(trivial.index[0])
    tested = [name for name in ranked.index if name != roles.baseline]
    tests = find_p(of_seeds, tested, p=roles.baseline, control_p=control)
    for name, runs in cell.groupby("family", sort=False):
        first, placebo = runs.iloc[0], roles.placebos.get(name, "")
        gain = subtract("gain", of_seeds, name, roles.baseline)
        beyond = subtract("beyond_placebo", of_seeds, name, placebo)
        both = gain | beyond | subtract("placebo_gain", of_seeds, placebo, roles.baseline)
        yield {
            "family": name,
            **first[[*CELL, *choice.CHOSEN]].to_dict(),
            "mean": means[name],
            "std": of_seeds[name].std(skipna=False),
            "seeds": runs["seed"].nunique(),
            "diverged": int(runs["diverged"].sum()),
            **{name: first[name] for name in SCORED if name in first},
            "rank": ranks.get(name, np.nan),
            **gain,
            **beyond,
            "placebo_verdict": decide_verdict(both, lowest) if placebo in of_seeds else np.nan,
            "control": control or np.nan,
            **subtract("beyond_control", of_seeds, name, control),
            **tests.loc[name],
        }


def find_p(of_seeds: dict[str, pd.Series], tested: list[str], **over: str) -> pd.DataFrame:
    """Return p of the differences to another family, by family; a column for each of `over`.

    Beside it is p corrected by Holm for the families `tested`. The model has these and those
    of `over`, if they have the seeds of the other one.
    """
    columns: dict[str, pd.Series] = {}
    for column, name in over.items():
        seeds = {*of_seeds[name].index} if name in of_seeds else set()
        model = dict.fromkeys([*tested, *over.values()])
        alike = {n: of_seeds[n] for n in model if n in of_seeds and {*of_seeds[n].index} == seeds}
        p = compare_in_blocks(pd.DataFrame(alike), name).reindex(tested)
        columns |= {column: p, f"{column}_holm": correct_by_holm(p)}
    return pd.DataFrame(columns, index=[*of_seeds])


def subtract(
    column: str, of_seeds: dict[str, pd.Series], name: str, other: str
) -> dict[str, float]:
    """Return the mean difference to another family over seeds, with its 95 % interval."""
    if other == name or not {name, other} <= {*of_seeds}:
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
    found = {"cells": len(ranks), "friedman_p": p, "critical_difference": apart}
    table = table.assign(mean_rank=table["family"].map(mean), **found)
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
    shown = {("over cells", "mean rank"): write_numbers(head["mean_rank"], "{:.2f}")}
    for name, rows in split_cells(table):
        own = rows.set_index("family")
        facts = own.to_dict("records")
        texts = [tables.write_cell(row, "{mean:.2f}") for row in facts]
        shown[name, score] = pd.Series(texts, own.index)
        shown[name, f"minus {over}"] = tables.write_intervals(own, "gain", "p_holm")
        marks = own["placebo_verdict"].map({NO_CONTROL: f", {NO_CONTROL}"}).fillna("")
        shown[name, "minus its placebo"] = tables.write_intervals(own, "beyond_placebo") + marks
        beyond = tables.write_intervals(own, "beyond_control", "control_p_holm")
        shown[name, "minus the best control"] = beyond
    found = pd.DataFrame(shown, head.index).fillna("").set_axis(head["family_label"])
    return found.loc[:, (found != "").any()].rename_axis("method")


def split_cells(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each cell's rows with its name, which has the setting if there are several of it."""
    settings = table.groupby(["dataset", "partition"])["setting"].transform("nunique")
    for (_, partition, setting), rows in table.groupby(CELL, sort=False):
        several = f", {setting}" * bool(settings[rows.index[0]] > 1)
        yield f"{rows['dataset_label'].iloc[0]}, {write_label(partition)}{several}", rows


def find_label(table: pd.DataFrame, family: str) -> str:
    return table.loc[table["family"] == family, "family_label"].iloc[0]


def plot(table: pd.DataFrame, study: Study, baseline: str = "fedavg") -> Figure:
    """Draw the mean ranks, the best at the top, and beside them each cell's gains.

    A filled mark has a corrected p below LEVEL; without any p, all marks are filled.
    """
    p = table["p_holm"]
    table = table.assign(filled=(p < LEVEL) | p.isna().all())
    ranked = table.dropna(subset="mean_rank").drop_duplicates("family")
    if ranked.empty:
        return figures.make_blank()
    cells = [(name, rows) for name, rows in split_cells(table) if rows["gain"].notna().any()]
    size = PANEL, 0.16 * len(ranked) + 1.1
    figure, (row,) = figures.panels(1, 1 + len(cells), *size, sharey=True, least=PANEL)
    first, *others = row
    unit = " (points)" * metrics.in_percent(table["of"].iloc[0])
    look = looks.list_looks(ranked["family"], study, styles=looks.POINTS, marks=looks.MARKS[1:])
    plot_ranks(first, ranked, look)
    for axes, (name, rows) in zip(others, cells, strict=True):
        by_family = rows.set_index("family")
        own = by_family.reindex(ranked["family"]).reset_index().to_dict("records")
        control = by_family["gain"].get(rows["control"].iloc[0], np.nan)
        plot_gains(axes, own, look, control)
        axes.set_title(f"{name}, {count(rows, 'seeds', 'seed')}".replace(", ", "\n"))
        axes.set_xlabel(textwrap.fill(f"gain over {find_label(table, baseline)}{unit}", 14))
    figures.explain_signs(figure, list_signs(table))
    return figure


def list_signs(table: pd.DataFrame) -> dict[str, tuple[bool, dict]]:
    """List the signs of the figure: whether a table has each, and its look."""
    has, mark = table.notna().any(), {"color": looks.GREY, "linestyle": "", "markersize": 4}
    return {
        f"corrected p below {LEVEL:g}": (has["p_holm"], mark | {"marker": "o"}),
        "95 % interval over seeds": (has["gain_low"], {"color": looks.GREY, "linewidth": 1}),
        "placebo of the method": (has["beyond_placebo"], RING | {"linestyle": ""}),
        "best control": (has["control"], CONTROL),
        "no different mean rank by Nemenyi's test": (has["critical_difference"], BAND),
    }


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
        axes.axvspan(best, best + apart, color=BAND["color"], zorder=-1, linewidth=0)
        axes.set_xlim(right=len(ranked) + 1)


def plot_gains(axes: Axes, rows: list[dict], look: dict[str, dict], control: float) -> None:
    """Draw each family's gain in a cell with its interval, and its placebo's gain as a ring.

    A dashed line is at the gain `control` of the best control. The axis has all gains of methods;
    intervals, placebos and the control may go beyond it.
    """
    axes.axvline(0, color="0.5", linewidth=0.8, zorder=0)
    axes.margins(x=0.15)
    for place, row in enumerate(rows):
        style = look[row["family"]] | {"markevery": 1, "markersize": 4}
        face = style["color"] if row["filled"] else "white"
        axes.plot(row["gain"], place, **style, markerfacecolor=face, markeredgewidth=0.6)
    axes.set_xlim(axes.get_xlim())
    axes.axvline(control, zorder=0, **CONTROL)
    for place, row in enumerate(rows):
        colour = look[row["family"]]["color"]
        axes.hlines(place, row["gain_low"], row["gain_high"], color=colour, linewidth=1)
        axes.plot(row["gain"] - row["beyond_placebo"], place, zorder=1, **RING)


def describe_panels(table: pd.DataFrame, baseline: str) -> str:
    if table["gain"].isna().all():
        return ""
    has = table.notna().any()
    several = ", with its 95 % interval over seeds" * bool(has["gain_low"])
    said = f" A gain is the difference to {find_label(table, baseline)} in a cell{several}."
    said += f" Filled marks have a corrected p below {LEVEL:g}." * bool(has["p_holm"])
    said += " A ring is the gain of the method's placebo." * bool(has["beyond_placebo"])
    return said + " A dashed line is the gain of the best control." * bool(has["control"])


def describe_better(table: pd.DataFrame, baseline: str) -> str:
    methods = table[table["rank"].notna() & table["gain_low"].notna()]
    if methods.empty:
        return ""
    text = ""
    for name, rows in split_cells(methods):
        text += f" {name}: {describe_better_in(rows, table, baseline)}"
    text += f" Better means p below {LEVEL:g} in a model of all methods and seeds of the cell, "
    text += "corrected by Holm for its methods"
    if table["beyond_placebo_low"].notna().any():
        text += "; than a placebo, the whole interval, which is not corrected"
    chosen = " The best control is chosen by the same scores, which favours it."
    return f"{text}.{chosen * bool(table['control'].notna().any())}"


def describe_better_in(rows: pd.DataFrame, table: pd.DataFrame, baseline: str) -> str:
    parts = [name_better(rows, "gain", "p", find_label(table, baseline))]
    if rows["control"].notna().any():
        control = f"the best control {find_label(table, rows['control'].iloc[0])}"
        parts.append(name_better(rows, "beyond_control", "control_p", control))
    harmful = rows["placebo_verdict"] == NO_CONTROL
    if rows["beyond_placebo_low"].notna().any():
        better = orient(rows, "beyond_placebo_low", "beyond_placebo_high") > 0
        parts.append(f"{name_rows(rows[better & ~harmful])} better than the placebo")
    text = f"{in_words(parts)}."
    if harmful.any():
        placebos = in_words(rows.loc[harmful, "family_label"])
        text += f" No control, because it is worse than {find_label(table, baseline)}: the placebo "
        text += f"of {placebos}."
    return text


def name_better(rows: pd.DataFrame, column: str, p: str, than: str) -> str:
    """Name the methods with a better score and a corrected p below LEVEL, and count without it."""
    ahead = orient(rows, column, column) > 0
    without = (ahead & (rows[p] < LEVEL)).sum()
    better = ahead & (rows[f"{p}_holm"] < LEVEL)
    return f"{name_rows(rows[better])} better than {than} ({without} without correction)"


def orient(rows: pd.DataFrame, low: str, high: str) -> pd.Series:
    """Return the lower end of a difference, turned so that a positive number is better."""
    return -rows[high] if metrics.lower_is_better(rows["of"].iloc[0]) else rows[low]


def name_rows(rows: pd.DataFrame) -> str:
    names = [*rows["family_label"]]
    return f"{in_words(names or ['no method'])} {'are' if len(names) > 1 else 'is'}"


def caption(
    table: pd.DataFrame, baseline: str = "fedavg", averaged: dict[str, str] | None = None
) -> str:
    if table.empty:
        raise UsageError("there are no runs to rank")
    score = tables.describe_score(table)
    deciding = metrics.describe_metric(metrics.validation_of(table["of"].iloc[0]))
    first = table.iloc[0]
    cells = "one cell" if first["cells"] == 1 else f"{first['cells']} cells"
    text = (
        f"Ranks by {score}: of each method the candidate with the best mean {deciding}, over "
        f"{cells}, {tables.join_values(table, 'scale')} scale. The best has rank 1."
        f"{describe_panels(table, baseline)}{describe_better(table, baseline)}"
    )
    fewest, most = table["candidates"].min(), table["candidates"].max()
    if fewest < most:
        text += f" Methods had different numbers of candidates: {fewest} to {most}."
    averaged = averaged or {}
    if missing := [name for name in averaged if name not in {*table["family"]}]:
        means = [f"the mean of {find_label(table, averaged[name])}'s" for name in missing]
        text += f" Without {in_words(means)} last models: no run has its score "
        text += "(`average_last` of the protocol)."
    if pd.isna(first["friedman_p"]):
        return f"{text} Ranks are tested from two cells and three methods on."
    return (
        f"{text} Friedman's test: p = {first['friedman_p']:.2g}. Mean ranks within "
        f"{first['critical_difference']:.1f} of the best one, shaded, do not differ from it by "
        "Nemenyi's test at 0.05."
    )
