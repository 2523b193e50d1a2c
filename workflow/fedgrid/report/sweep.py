"""A metric as a function of fields of the protocol, or of hyper-parameters of methods.

There are two forms. With `along`, all fields are read from one table `runs` and its `settings`. A
line is a family of methods, which are combined from the same files; a family without the field is a
dashed line over the whole width. With `fields`, each field has its own tables of runs and settings.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import fields as of_runs
from fedgrid.analysis import figures, looks, metrics, tables
from fedgrid.analysis.scores import RUN, mean_over_seeds, score_runs
from fedgrid.runtime.names import UsageError, in_words, listed
from fedgrid.study.records import Study

# What they name (study/options.py).
OPTIONS = {"fields": "field", "along": "field", "metric": "metric"}
LINE = ["series", "among"]  # a family, and the values in which its lines differ
SETTING = ["dataset", "partition"]
MARKED = {"markersize": 3, "markevery": 1}
GAP = 0.15  # of a logarithmic axis, between numbers that are written at it
Along = str | list[str] | dict[str, str]


def draw(
    study: Study,
    scale: str,
    fields: dict[str, str] | None = None,
    along: Along | None = None,
    metric: str = "accuracy",
    **tables: pd.DataFrame,
) -> pd.DataFrame:
    """Return a row per field, line and value: means over seeds.

    `along` is a field, a list of fields, or has a label for each; the sources are `runs` and
    `settings`. `fields` has a label for each field; a field `mu` has two sources: `mu`, the runs,
    and `mu_settings`, their settings.
    """
    labels = label_fields(fields, along)
    wanted = ["runs", "settings"] if along else [n for f in labels for n in (f, f"{f}_settings")]
    if missing := [name for name in wanted if name not in tables]:
        raise UsageError(f"the sweep needs the source `{missing[0]}`: name it under `from`")
    if along:
        return draw_along(labels, tables["runs"], tables["settings"], metric).assign(scale=scale)
    parts = [draw_field(f, tables[f], tables[f"{f}_settings"], metric) for f in labels]
    return pd.concat(parts).assign(scale=scale)


def label_fields(fields: dict[str, str] | None, along: Along | None) -> dict[str, str]:
    """Return a label for each field; UsageError unless exactly one of both options is given."""
    if bool(fields) == bool(along):
        raise UsageError(
            "the sweep needs one of two options: write `with: {along: lr}` with the name of a "
            "field, or `fields` with a label for each field"
        )
    given = fields or along
    return given if isinstance(given, dict) else {name: name for name in listed(given)}


# -- one table of runs ----------------------------------------------------------------------------


def draw_along(
    names: Iterable[str], runs: pd.DataFrame, settings: pd.DataFrame, metric: str
) -> pd.DataFrame:
    scores = score_runs(runs, metric)
    every = of_runs.select_runs(of_runs.read_fields(settings), scores)
    scores["series"] = scores["method"].map(of_runs.name_groups(of_runs.find_families(settings)))
    parts = [draw_along_field(name, scores, every, metric) for name in names]
    return pd.concat(parts, ignore_index=True).round({"mean": 4, "std": 4, "final": 4})


def draw_along_field(
    name: str, scores: pd.DataFrame, every: pd.DataFrame, metric: str
) -> pd.DataFrame:
    """Return the rows of one field; `at` is empty for a family that does not have it."""
    scores = scores.assign(at=of_runs.select_field(every, name).fillna(of_runs.ABSENT).to_numpy())
    families = [family for _, family in scores.groupby("series", sort=False)]
    named = pd.concat(family.assign(among=name_lines(family, every)) for family in families)
    by = [*LINE, *SETTING, "at"]
    table = mean_over_seeds(named, by, metric).assign(field=name)
    table["final"] = mean_over_seeds(named, by, "final")["mean"]
    rank = of_runs.order_values(table["at"]).index
    table = table.sort_values("at", key=lambda at: at.map(rank), kind="stable")
    return table.assign(at=table["at"].mask(table["at"] == of_runs.ABSENT))


def name_lines(runs: pd.DataFrame, every: pd.DataFrame) -> pd.Series:
    """Name the line of each run of a family, such as `lr=0.1`; empty if the family has one line.

    A family has several lines if a seed has several runs at one value of the field. The name has
    the other fields in which these runs differ, but no field that depends on the swept one.
    """
    keys = [*SETTING, "at", "seed"]
    none = pd.Series("", runs.index)
    if not runs.duplicated(keys).any():
        return none
    fields = of_runs.select_runs(every, runs)
    at = runs["at"].to_numpy()
    differing = of_runs.find_differing(fields)
    free = [name for name in differing if (fields[name].groupby(at).nunique(False) > 1).any()]
    texts = none + of_runs.write_fields(fields, free).to_numpy()
    if (twice := runs.assign(among=texts).duplicated([*keys, "among"])).any():
        name = runs["method"][twice].iloc[0]
        raise UsageError(
            f"the sweep has several runs of {name} with one seed and the same settings: leave all "
            "but one out of its grid"
        )
    return texts


# -- a table of runs per field --------------------------------------------------------------------


def draw_field(
    field: str, runs: pd.DataFrame, settings: pd.DataFrame, metric: str = "accuracy"
) -> pd.DataFrame:
    """Return a row per series and value of a field; participation becomes clients per round.

    A series is the runs of a method, or, for a hyper-parameter, of the method's file that has it.
    """
    rows = settings[settings["field"] == field]
    series = rows["of"].where(rows["of"].notna(), rows["method"])
    rows = rows.assign(at=rows["value"].astype(float), series=series)
    scores = score_runs(runs, metric).merge(rows[[*RUN, "at", "series"]], on=RUN)
    by = ["series", *SETTING, "at"]
    table = mean_over_seeds(scores, by, metric).assign(field=field)
    table["final"] = mean_over_seeds(scores, by, "final")["mean"]
    table = table.sort_values("at", kind="stable").round(4)
    if field == "participation":
        table["at"] *= runs["clients"].iloc[0]
    return table


# -- the figure -----------------------------------------------------------------------------------


def plot(
    table: pd.DataFrame,
    study: Study,
    fields: dict[str, str] | None = None,
    along: Along | None = None,
    sharey: bool = False,
) -> Figure:
    labels = label_fields(fields, along)
    among = table["among"].astype(object).fillna("") if "among" in table else [""] * len(table)
    series = [figures.label(study, name) for name in table["series"]]
    pairs = zip(series, among, strict=True)
    table = table.assign(line=[", ".join(filter(None, pair)) for pair in pairs])
    places = lay_out(table, [*labels])
    methods = dict(zip(table["line"], table["series"], strict=True))
    size: dict[str, Any] = {"width": 2.6, "least": figures.find_room(methods)}
    figure, grid = figures.panels(len(places), len(places[0]), sharey=sharey, **size)
    look = looks.list_looks(methods, study, methods, marks=looks.MARKS[1:])
    for row, of_row in zip(grid, places, strict=True):
        for axes, (dataset, partition, field) in zip(row, of_row, strict=True):
            here = (table["dataset"] == dataset) & (table["partition"] == partition)
            plot_series(axes, table[here & (table["field"] == field)], look)
            if len(places) * len(places[0]) > len(labels):
                axes.set_title(figures.write_setting(study, dataset, partition))
        figures.label_rows(row, tables.write_axis_label(table))
    for axes, (*_, field) in zip(grid[-1], places[-1], strict=True):
        axes.set_xlabel(labels[field])
    figures.name_lines([axes for row in grid for axes in row])
    return figure


def lay_out(table: pd.DataFrame, fields: list[str]) -> list[list[tuple[str, str, str]]]:
    """Return rows of panels: a row per dataset; with several fields, per dataset and partition."""
    settings = [*dict.fromkeys(zip(table["dataset"], table["partition"], strict=True))]
    settings = settings or [("", "")]
    if len(fields) > 1 or len(settings) == 1:
        return [[(*setting, field) for field in fields] for setting in settings]
    datasets, partitions = table["dataset"].unique(), table["partition"].unique()
    return [[(dataset, name, fields[0]) for name in partitions] for dataset in datasets]


def plot_series(axes: Axes, table: pd.DataFrame, look: dict[str, dict]) -> None:
    table = table.assign(place=place_values(axes, table["at"]))
    for name, line in table.groupby("line", sort=False):
        if line["place"].isna().all():
            plot_level(axes, line, name, look[name])
            continue
        if line["mean"].notna().any():
            figures.plot_band(axes, line, "place", look[name], **MARKED, label=name)
        gone = line.loc[line["diverged"] > 0, "place"]
        figures.plot_crosses(axes, gone, look[name]["color"], axes.get_xaxis_transform())


def place_values(axes: Axes, values: pd.Series) -> pd.Series:
    """Return positions on the axis: numbers, or ranks of texts; a missing value has none."""
    present = values.dropna()
    numbers = pd.to_numeric(present, errors="coerce")
    if numbers.isna().any():
        texts = present.map(of_runs.write_value)
        unique = [*dict.fromkeys(texts)]
        axes.set_xticks(range(len(unique)), unique)
        return texts.map(unique.index).reindex(values.index)
    if figures.use_scale(axes.xaxis, numbers):
        write_ticks(axes, numbers)
    elif numbers.nunique() == 1:
        axes.set_xticks(numbers.unique())
    return numbers.reindex(values.index)


def write_ticks(axes: Axes, numbers: pd.Series) -> None:
    """Write the values at a logarithmic axis, without those that are close to a smaller one."""
    places = np.log(np.sort(numbers.unique()))
    shown: list[float] = []
    for place in places:
        if not shown or place - shown[-1] > GAP * (places[-1] - places[0]):
            shown.append(place)
    axes.set_xticks(np.exp(shown), [f"{number:g}" for number in np.exp(shown)])
    axes.minorticks_off()


def plot_level(axes: Axes, line: pd.DataFrame, name: str, look: dict) -> None:
    (facts,) = line.to_dict("records")
    colour, deviation = look["color"], 0 if pd.isna(facts["std"]) else facts["std"]
    if facts["diverged"]:
        figures.plot_crosses(axes, pd.Series([1]), colour, axes.transAxes)
        return
    after = looks.STYLES.index(look["linestyle"]) + 1  # the first one is dashed, not solid
    style = looks.STYLES[after % len(looks.STYLES)]
    axes.axhline(facts["mean"], color=colour, linestyle=style, label=name)
    low, high = facts["mean"] - deviation, facts["mean"] + deviation
    axes.axhspan(low, high, color=colour, alpha=0.12, lw=0)


def caption(table: pd.DataFrame) -> str:
    percent = ", percent" * metrics.in_percent(tables.find_metric(table))
    name = "series" if "series" in table else "method"
    lost = [*table.loc[table["diverged"] > 0, name].unique()]
    cross = f" A cross marks a run that diverged, of {in_words(lost)}." if lost else ""
    without = "at" in table and bool(table["at"].isna().any())
    level = " A dashed line over the whole width is a method without the field." * without
    return (
        f"The {tables.describe_score(table)}{percent}: "
        f"{tables.describe_scope(table)}.{level}{cross}"
    )
